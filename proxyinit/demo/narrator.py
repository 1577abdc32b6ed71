"""What the reader sees: headings, sentences, commands and tables, 80 columns wide.

On a terminal with colours; in a pipe, and where NO_COLOR is set, the same text
without any escape code.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDTH = 80
INDENT = 2

Cell = str | Text


def console(*, stderr: bool = False) -> Console:
    """Standard output, or standard error, as a terminal of at most 80 columns."""
    stream = sys.stderr if stderr else sys.stdout
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        return Console(stderr=stderr, width=WIDTH, color_system=None)
    made = Console(stderr=stderr, highlight=False)
    made.width = min(made.width, WIDTH)
    return made


class Narrator:
    """Tells the reader what happens."""

    def __init__(self, shown: Console) -> None:
        self._console = shown
        self._chapters = 0

    def opening(self, title: str, text: str) -> None:
        """Say what this is going to be."""
        self._line(Text(title, style="bold"))
        self._line()
        self._line(Text(text))

    def chapter(self, title: str, why: str) -> None:
        """Begin a chapter: its number, its title, and why it matters."""
        self._chapters += 1
        self._line()
        self._line(Text(f"{self._chapters}  {title}", style="bold cyan"))
        self._line()
        self.say(why)

    def say(self, text: str) -> None:
        """A paragraph."""
        self._indented(Text(text))
        self._line()

    def note(self, text: str) -> None:
        """What a program said by itself."""
        self._indented(Text(text.strip(), style="yellow"))
        self._line()

    def command(self, words: Sequence[str]) -> None:
        """A command line, broken between flags where it is too long."""
        lines = list(wrap_command(words, WIDTH - 2 * INDENT - 4))
        shown = " \\\n      ".join(lines)
        self._indented(Text.assemble(("$ ", "dim"), (shown, "bold")))
        self._line()

    def printed(self, text: str) -> None:
        """What a program printed for people, as it is."""
        self._indented(Text(text.rstrip()))
        self._line()

    def table(self, table: Table) -> None:
        """A table, or a picture made as one."""
        self._indented(table)
        self._line()

    def proved(self, text: str) -> None:
        """A claim that was checked and holds."""
        self._indented(Text.assemble(("ok  ", "bold green"), text))

    def working(self, text: str) -> AbstractContextManager[object]:
        """A sign of life while something takes a second; on a terminal only."""
        if self._console.is_terminal and self._console.color_system:
            return self._console.status(Text(text, style="dim"))
        return contextlib.nullcontext()

    def closing(self, text: str) -> None:
        """The last word."""
        self._line()
        self._line(Text(text, style="bold green"))

    def failed(self, message: str, *details: str) -> None:
        """What is not as it should be, and what there is to say of it."""
        self._line(Text.assemble(("demo: ", "bold red"), message))
        for detail in filter(None, map(str.strip, details)):
            self._line(Text(detail, style="dim"))

    def _line(self, what: Text | str = "") -> None:
        self._print(what)

    def _indented(self, what: Text | Table) -> None:
        self._print(Padding(what, (0, 0, 0, INDENT), expand=False))

    def _print(self, what: RenderableType) -> None:
        """Print at once, without the blanks that rich fills lines with."""
        with self._console.capture() as captured:
            self._console.print(what)
        lines = captured.get().splitlines()
        self._console.file.write("".join(f"{line.rstrip()}\n" for line in lines))
        self._console.file.flush()


def grid(rows: Iterable[Sequence[Cell]], *, heading: Sequence[str] = ()) -> Table:
    """Aligned columns without lines; the heading, if any, underlined."""
    columns = heading or []
    table = Table(
        box=box.SIMPLE_HEAD if heading else None,
        show_edge=False,
        show_header=bool(heading),
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    rows = list(rows)
    for number in range(max(map(len, rows), default=0)):
        title = columns[number] if number < len(columns) else ""
        table.add_column(title, no_wrap=True)
    for row in rows:
        # Made to Text: rich would take the brackets of [::1] for markup.
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def wrap_command(words: Sequence[str], width: int) -> Iterator[str]:
    """Lines of at most `width` columns; a flag stays beside its value."""
    line = ""
    for piece in _pieces(words):
        if line and len(line) + 1 + len(piece) > width:
            yield line
            line = ""
        line = f"{line} {piece}" if line else piece
    yield line


def _pieces(words: Sequence[str]) -> list[str]:
    pieces: list[str] = []
    for word in words:
        if pieces and not word.startswith("-") and pieces[-1].startswith("-"):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    return pieces
