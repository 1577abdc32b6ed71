"""Commands that tell every mistake of a command line, where click tells the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import click

from identity.errors import Misconfigured

Check: TypeAlias = Callable[[Mapping[str, Any]], Iterable[str]]
"""What is wrong with options each of which could be read."""


class Command(click.Command):
    """A command that goes on reading after a mistake, as if that were not there.

    `check` is asked only when there is a mistake already: what is wrong with a line
    that can be read, the command itself finds out.
    """

    def __init__(self, *args: Any, check: Check = lambda _: (), **more: Any) -> None:
        super().__init__(*args, **more)
        self._check = check

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; every mistake is in the one error raised."""
        mistakes: list[str] = []
        left = list(args)
        words: list[str] = []
        while True:
            try:
                words = super().parse_args(ctx, list(left))
                break
            except click.UsageError as error:
                mistakes.append(error.format_message())
                if type(error) is click.UsageError:  # only words too many are left
                    break
                read = self._without(error, left)
                if len(read) == len(left):
                    raise _all(mistakes, ctx) from error
                left = read
        if mistakes:
            raise _all([*mistakes, *self._check(ctx.params)], ctx)
        return words

    def _without(self, error: click.UsageError, args: list[str]) -> list[str]:
        """The arguments without the option that an error is about, and its value."""
        wrong: set[str] = set()
        if isinstance(error, click.BadParameter) and error.param is not None:
            wrong.update(error.param.opts)
        elif isinstance(error, click.NoSuchOption | click.BadOptionUsage):
            wrong.add(error.option_name)
        options = {name: option for option in self.params for name in option.opts}
        left = []
        rest = list(args)
        while rest:
            words = [rest.pop(0)]
            option = options.get(words[0])
            if isinstance(option, click.Option):
                takes_next = not option.is_flag
            else:  # a word after an option that there is not was meant as its value
                takes_next = words[0] in wrong and not "".join(rest[:1]).startswith("-")
            if takes_next:
                words += rest[:1]
                del rest[:1]
            if words[0].partition("=")[0] not in wrong:
                left += words
        return left


def _all(mistakes: Iterable[str], ctx: click.Context) -> click.UsageError:
    return click.UsageError(str(Misconfigured(tuple(mistakes))), ctx)
