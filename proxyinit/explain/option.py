"""One option of a match that is kept word for word. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from proxyinit.explain.trace import Finding, Question
from proxyinit.explain.view import View, undecided


class Option:
    """One option of a match: ``[!] --option value ...``."""

    __slots__ = ("name", "negated", "question", "values")

    def __init__(self, module: str, words: Sequence[str]) -> None:
        self.negated = words[0] == "!"
        self.name, *self.values = words[self.negated :]
        self.question: Question = (module, self.name, *self.values)

    @property
    def value(self) -> str:
        """The one value there has to be."""
        return self.values[0]


def other(option: Option, view: View) -> Finding:
    """An option that is not in the list."""
    shown = " ".join((option.name, *option.values))[:80]
    why = f"'{option.question[0]} {shown}' can't be judged"
    return undecided(view, option.question, why, negated=option.negated)
