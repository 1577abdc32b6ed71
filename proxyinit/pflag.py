"""Reading a command line by the rules of Go's pflag, which upstream uses.

``--flag value``, ``--flag=value``, ``-f value``, ``-fvalue``, ``-f=value``,
``--bool``, ``--bool=false``, lists by comma or by repetition, flags and words in
any order. No mistake ends the reading: all of them are told together.
"""

from __future__ import annotations

from proxyinit.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def parse_bool(text: str) -> bool:
    """The words that Go's strconv.ParseBool takes."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError("expected true or false")


class Flag(Record):
    """One flag: how it is spelled, what its text must be, what it is for.

    A `many` flag collects items from commas and repetitions into a tuple.
    """

    name: str
    help: str
    parse: Callable[[str], object] = str
    short: str = ""
    metavar: str = ""
    default: object = None
    many: bool = False

    @property
    def is_bool(self) -> bool:
        """Whether the flag may stand alone, meaning true."""
        return self.parse is parse_bool


class Arguments(Record):
    """What a command line says: values by flag name, and everything wrong with it.

    `given` holds the texts as typed, for messages and notes. `words` are the
    arguments that are no flags. `help` is set by -h and --help.
    """

    values: dict[str, object]
    given: dict[str, list[str]]
    words: tuple[str, ...]
    problems: tuple[str, ...]
    help: bool


def parse(argv: Sequence[str], flags: tuple[Flag, ...]) -> Arguments:
    """Read a command line; never raises, mistakes are in `problems`."""
    given: dict[str, list[str]] = {}
    words: list[str] = []
    problems: list[str] = []
    for name, text in _scan(argv, flags, words, problems):
        given.setdefault(name, []).append(text)
    wants_help = given.pop("help", None) is not None
    values: dict[str, object] = {}
    for flag in flags:
        texts = given.get(flag.name)
        if texts is None:
            values[flag.name] = () if flag.many else flag.default
            continue
        items = split_items(texts) if flag.many else texts
        parsed = list(_parse_items(flag, items, problems))
        if flag.many:
            values[flag.name] = tuple(parsed)
        else:  # the last one counts, as with pflag
            values[flag.name] = parsed[-1] if parsed else flag.default
    return Arguments(values, given, tuple(words), tuple(problems), wants_help)


def split_items(texts: Sequence[str]) -> list[str]:
    """The items of a list flag, from all its occurrences; blanks around them go."""
    return [item.strip(" ") for text in texts for item in text.split(",")]


def _parse_items(flag: Flag, items: list[str], problems: list[str]) -> Iterator[object]:
    for item in items:
        try:
            yield flag.parse(item)
        except ValueError as error:
            problems.append(f"--{flag.name} {item!r}: {error}")


def _scan(
    argv: Sequence[str],
    flags: tuple[Flag, ...],
    words: list[str],
    problems: list[str],
) -> Iterator[tuple[str, str]]:
    """(flag name, text) for every flag on the line; other words into `words`."""
    by_name = {flag.name: flag for flag in flags}
    by_short = {flag.short: flag for flag in flags if flag.short}
    rest = list(argv)
    while rest:
        arg = rest.pop(0)
        if arg == "--":
            words += rest
            return
        if arg.startswith("--"):
            name, equals, text = arg[2:].partition("=")
            if name == "help":
                yield "help", ""
                continue
            flag = by_name.get(name)
            if flag is None:
                problems.append(f"unknown flag --{name}")
                continue
            yield from _value(flag, equals, text, rest, problems)
        elif arg.startswith("-") and len(arg) > 1:
            yield from _scan_short(arg[1:], by_short, rest, problems)
        else:
            words.append(arg)


def _scan_short(
    letters: str, by_short: dict[str, Flag], rest: list[str], problems: list[str]
) -> Iterator[tuple[str, str]]:
    """One-letter flags: those that may stand alone can be followed by others."""
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter == "h":
            yield "help", ""
            continue
        flag = by_short.get(letter)
        if flag is None:
            problems.append(f"unknown flag -{letter} in '-{letter}{letters}'")
            return
        if flag.is_bool and not letters.startswith("="):
            yield flag.name, "true"
            continue
        equals = "=" if letters else ""
        yield from _value(flag, equals, letters.removeprefix("="), rest, problems)
        return


def _value(
    flag: Flag, equals: str, text: str, rest: list[str], problems: list[str]
) -> Iterator[tuple[str, str]]:
    if equals:
        yield flag.name, text
    elif flag.is_bool:
        yield flag.name, "true"
    elif rest:
        yield flag.name, rest.pop(0)
    else:
        problems.append(f"--{flag.name} needs a value: {flag.metavar}")
