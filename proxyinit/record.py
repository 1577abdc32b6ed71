"""Immutable values that cost nothing to import.

``dataclasses`` adds 11 ms and ``typing.NamedTuple`` 7 ms to a process that
lives for 20 (measured, CPython 3.11), and the install runs once in every pod of
a cluster. `Record` gives the part that is needed here: fields from annotations,
defaults, equality by type and value, no assignment after construction. To type
checkers it is a frozen dataclass.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import dataclass_transform

    @dataclass_transform(frozen_default=True)
    class Record:
        """A frozen dataclass, as far as a type checker is concerned."""

else:

    class Record:
        """A value: fields are the annotations of the class, in order."""

        _fields = ()
        _defaults = {}  # noqa: RUF012  (never changed after the class is made)

        def __init_subclass__(cls) -> None:
            cls._fields = tuple(cls.__annotations__)
            cls._defaults = {
                name: cls.__dict__[name] for name in cls._fields if name in cls.__dict__
            }

        def __init__(self, *args: object, **kwargs: object) -> None:
            values = self.__dict__
            values.update(zip(self._fields, args, strict=False))
            if len(args) == len(self._fields) and not kwargs:
                return
            for name in self._fields[len(args) :]:
                if name in kwargs:
                    values[name] = kwargs.pop(name)
                elif name in self._defaults:
                    values[name] = self._defaults[name]
            if (
                kwargs
                or len(args) > len(self._fields)
                or len(values) < len(self._fields)
            ):
                raise TypeError(
                    f"{type(self).__name__} has the fields {', '.join(self._fields)}; "
                    f"got {len(args)} values and {', '.join(kwargs) or 'no'} others"
                )

        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(f"{type(self).__name__}.{name} can't be changed")

        def __delattr__(self, name: str) -> None:
            raise AttributeError(f"{type(self).__name__}.{name} can't be removed")

        def __eq__(self, other: object) -> bool:
            if type(self) is not type(other):
                return NotImplemented
            return self.__dict__ == other.__dict__

        def __hash__(self) -> int:
            return hash((type(self), *(getattr(self, name) for name in self._fields)))

        def __repr__(self) -> str:
            shown = (f"{name}={getattr(self, name)!r}" for name in self._fields)
            return f"{type(self).__name__}({', '.join(shown)})"
