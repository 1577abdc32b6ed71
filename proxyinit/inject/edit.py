"""A changed value written into the text that it was read from.

Only the lines of what differs are touched: comments, order, quotes and indentation
of all else stay. `Unplaceable` says that a text is laid out in a way that leaves no
room for that (a first key behind a dash that would go, flow maps without braces);
the caller lays the object out anew and edits that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from proxyinit.inject import layout
from proxyinit.inject.alignment import aligned, differ
from proxyinit.inject.syntax import Mapping, Node, Scalar, Sequence, key

_OTHER_BREAKS = re.compile("[\x85\u2028\u2029]|\r(?!\n)")
"""What ends a line for YAML 1.1, and for nobody else."""

_JSON_STEP = re.compile(r"^[{\[]\r?\n( +)", re.MULTILINE)


class Unplaceable(Exception):
    """No way is known to write a change into this layout."""


Change = tuple[Node, Any, Any]
"""A node, what was read from it, and what should be."""


def edited(text: str, changes: Iterable[Change]) -> str:
    """The text with changes in nodes that do not contain each other."""
    if _OTHER_BREAKS.search(text):
        raise Unplaceable
    ended = text if text.endswith("\n") else text + "\n"
    editor = _Editor(ended)
    for change in changes:
        editor.part(*change)
    return editor.result()


class _Editor:
    """Collects splices: where from, where to, what comes there."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.offset = layout.dash_offset(text)
        found = _JSON_STEP.search(text)
        self.step = len(found[1]) if found else 2
        self.splices: list[tuple[int, int, str]] = []

    def result(self) -> str:
        """The text with all splices made, each in its place."""
        done, parts = 0, []
        for start, end, new in sorted(self.splices, key=lambda s: (s[0], s[1])):
            if start < done:
                raise Unplaceable
            parts += [self.text[done:start], new]
            done = end
        return "".join([*parts, self.text[done:]])

    def put(self, start: int, end: int, new: str) -> None:
        """Note a splice, with the text's own line breaks."""
        if self.newline != "\n":
            new = new.replace("\n", self.newline)
        self.splices.append((start, end, new))

    def part(self, node: Node, old: Any, new: Any) -> None:
        """Write what differs between two maps, or two lists, that hold something."""
        if isinstance(node, Mapping) and isinstance(new, dict):
            (self.flow_map if node.flow_style else self.block_map)(node, old, new)
        elif isinstance(node, Sequence) and isinstance(new, list):
            (self.flow_list if node.flow_style else self.block_list)(node, old, new)
        else:
            raise Unplaceable

    # === maps in block style ===

    def block_map(self, node: Mapping, old: Any, new: Any) -> None:
        """Change, remove and append the lines of keys."""
        if not new:
            raise Unplaceable
        for name, item in node.value:
            text = key(name)
            if text not in new:
                self.put(self.own_line(name), self.line_end(item), "")
            elif differ(old[text], new[text]):
                self.value(name, item, old[text], new[text])
        first = node.value[0][0].start_mark
        if "?" in self.text[first.index - first.column : first.index]:
            raise Unplaceable
        column = first.column
        added = [
            layout.entry(k, v, column, self.offset)
            for k, v in new.items()
            if k not in old
        ]
        if added:
            end = self.line_end(node)
            self.put(end, end, "".join(added))

    def value(self, name: Node, item: Node, old: Any, new: Any) -> None:
        """Change the value of a key in block style."""
        if old and new and type(old) is type(new) and isinstance(old, dict | list):
            self.part(item, old, new)
            return
        between = self.text[name.end_mark.index : item.start_mark.index]
        if not between.lstrip(" ").startswith(":"):
            raise Unplaceable  # a key behind a question mark
        said = layout.entry("k", new, name.start_mark.column, self.offset).lstrip(" ")
        first, _, rest = said.removeprefix("k").partition("\n")
        start, end = name.end_mark.index, self.tail(item)
        if isinstance(item, Scalar) or item.flow_style:
            # A comment behind the old value stays on the line of the key.
            self.put(start, end, first)
            below = self.line_end(item)
            self.put(below, below, rest)
        elif item.start_mark.line == name.start_mark.line:
            raise Unplaceable  # an anchor stands between key and value
        else:
            colon = self.text.index(":", start) + 1
            self.put(colon, colon, first.removeprefix(":"))
            self.put(self.line_after(colon), self.line_end(item), rest)

    # === lists in block style ===

    def block_list(self, node: Sequence, old: Any, new: Any) -> None:
        """Change, remove and insert items with their dashes."""
        column = node.start_mark.column
        dashes = self.dashes(node)
        for at, before, after in aligned(old, new):
            if before and after:
                self.item(node.value[at], before[0], after[0])
            elif before:
                end = self.line_end(node.value[at], at_least=dashes[at])
                self.put(dashes[at], end, "")
            else:
                if at:
                    place = self.line_end(node.value[at - 1], dashes[at - 1])
                else:
                    place = self.above(dashes[0])
                self.put(place, place, layout.item(after[0], column, self.offset))

    def item(self, node: Node, old: Any, new: Any) -> None:
        """Change an item in place."""
        if old and new and type(old) is type(new) and isinstance(old, dict | list):
            self.part(node, old, new)
        elif isinstance(node, Scalar) and not isinstance(new, dict | list):
            start = node.start_mark.index
            gap = "" if self.text[start - 1].isspace() else " "  # after a lone dash
            self.put(start, self.tail(node), gap + layout.scalar(new))
        else:
            raise Unplaceable

    def dashes(self, node: Sequence) -> list[int]:
        """The start of each item's first line."""
        column = node.start_mark.column
        first = node.start_mark.index - column
        if self.text[first : node.start_mark.index].strip(" "):
            raise Unplaceable
        places = [first]
        lead = "\n" + " " * column + "-"
        for item in node.value[:-1]:
            found = self.text.find(lead, self.line_end(item, places[-1]) - 1)
            if found < 0:
                raise Unplaceable
            places.append(found + 1)
        return places

    # === flow style: JSON, and what looks like it ===

    def flow_map(self, node: Mapping, old: Any, new: Any) -> None:
        """Change, remove and append keys between braces."""
        self.bracketed(node, "{")
        names = [key(name) for name, _ in node.value]
        kept = [name in new for name in names]
        fresh = {k: v for k, v in new.items() if k not in old}
        if not any(kept):
            self.flow_whole(node, new)
            return
        for name, (_, item) in zip(names, node.value, strict=True):
            if name in new and differ(old[name], new[name]):
                self.flow_value(item, old[name], new[name])
        spans = [(k.start_mark.index, self.tail(v)) for k, v in node.value]
        self.flow_cut(spans, kept)
        for k, v in fresh.items():
            said = f"{layout.json_string(k)}: {self.flow_text(v, spans)}"
            self.flow_append(spans, kept, said)

    def flow_list(self, node: Sequence, old: Any, new: Any) -> None:
        """Change, remove and insert items between brackets."""
        self.bracketed(node, "[")
        steps = list(aligned(old, new))
        kept = [True] * len(old)
        for at, before, after in steps:
            if before and not after:
                kept[at] = False
        if not any(kept):
            self.flow_whole(node, new)
            return
        spans = [(item.start_mark.index, self.tail(item)) for item in node.value]
        self.flow_cut(spans, kept)
        for at, before, after in steps:
            if before and after:
                self.flow_value(node.value[at], before[0], after[0])
            elif after and any(kept[at:]):
                here = spans[at + kept[at:].index(True)][0]
                said = self.flow_text(after[0], spans)
                self.put(here, here, f"{said},{self.flow_gap(spans) or ' '}")
            elif after:
                self.flow_append(spans, kept, self.flow_text(after[0], spans))

    def flow_value(self, item: Node, old: Any, new: Any) -> None:
        """Change a value in flow style."""
        if old and new and type(old) is type(new) and isinstance(old, dict | list):
            self.part(item, old, new)
        elif item.start_mark.index == item.end_mark.index:
            raise Unplaceable  # {a}, {a: }: nothing is where the value belongs
        else:
            start, end = item.start_mark.index, item.end_mark.index
            self.put(start, end, layout.flow(new))

    def flow_whole(self, node: Node, new: Any) -> None:
        """Write a collection anew of which nothing stays."""
        self.put(node.start_mark.index, node.end_mark.index, layout.flow(new))

    def flow_cut(self, spans: list[tuple[int, int]], kept: list[bool]) -> None:
        """Remove parts, each with one comma."""
        for at, (start, end) in enumerate(spans):
            if kept[at]:
                continue
            if any(kept[at:]):
                self.put(start, spans[at + 1][0], "")
            else:  # nothing follows that stays: the comma before goes
                self.put(spans[at - 1][1], end, "")

    def flow_append(
        self, spans: list[tuple[int, int]], kept: list[bool], said: str
    ) -> None:
        """Add a part behind the last one that stays."""
        last = max(at for at, stays in enumerate(kept) if stays)
        end = spans[last][1]
        self.put(end, end, f",{self.flow_gap(spans) or ' '}{said}")

    def flow_text(self, new: Any, spans: list[tuple[int, int]]) -> str:
        """JSON: over several lines where its neighbours have lines of their own."""
        gap = self.flow_gap(spans)
        return layout.flow(new, self.step, len(gap) - 1) if gap else layout.flow(new)

    def flow_gap(self, spans: list[tuple[int, int]]) -> str:
        """Line break and indentation before the last part; empty within a line."""
        start = spans[-1][0]
        line = self.text.rfind("\n", 0, start) + 1
        lead = self.text[line:start]
        return "" if lead.strip(" ") or not line else "\n" + lead

    def bracketed(self, node: Node, bracket: str) -> None:
        """Raise `Unplaceable` for a pair in a list that has no braces of its own."""
        if self.text[node.start_mark.index] != bracket:
            raise Unplaceable

    # === places ===

    def tail(self, node: Node) -> int:
        """Where the last thing of a node ends, without the line break."""
        if isinstance(node, Scalar):
            end = node.end_mark.index
            if node.style in ("|", ">"):
                start = node.start_mark.index
                return start + len(self.text[start:end].rstrip())
            return end
        if node.flow_style or not node.value:
            return node.end_mark.index
        last = node.value[-1]
        return self.tail(last[1] if isinstance(node, Mapping) else last)

    def line_end(self, node: Node, at_least: int = 0) -> int:
        """The start of the line after a node's last one."""
        last = node
        while not isinstance(last, Scalar) and not last.flow_style and last.value:
            inner = last.value[-1]
            last = inner[1] if isinstance(last, Mapping) else inner
        if isinstance(last, Scalar) and last.style in ("|", ">"):
            start, end = last.start_mark.index, last.end_mark.index
            if "+" in self.text[start : start + 3]:
                return end  # blank lines at the end belong to the text
        return self.line_after(max(self.tail(last), at_least))

    def line_after(self, index: int) -> int:
        """The start of the next line; what stands before it is at most a comment."""
        return self.text.index("\n", index) + 1

    def own_line(self, name: Node) -> int:
        """The start of a key's line, which has to be the key's alone."""
        start: int = name.start_mark.index - name.start_mark.column
        if self.text[start : name.start_mark.index].strip(" "):
            raise Unplaceable
        return start

    def above(self, line: int) -> int:
        """Where blank lines and comments above a line begin."""
        start = self.text.rfind("\n", 0, line)
        while start > 0:
            before = self.text.rfind("\n", 0, start) + 1
            said = self.text[before:start].strip()
            if said and not said.startswith("#"):
                break
            start = before - 1
        return start + 1
