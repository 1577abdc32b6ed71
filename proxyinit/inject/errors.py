"""What keeps a workload from being injected, as one tree.

::

    InjectError               a failure to be told in one message
    |-- ValuesError           the chart's values or the trust anchors can't be used
    |-- Unrenderable          values and annotations ask for what can't be together
    |-- Malformed             an object is not shaped like its kind
    |-- BadReview             a body is no AdmissionReview that can be answered
    `-- NotKnown              the Kubernetes API would know, and could not be asked
"""

from __future__ import annotations

from collections.abc import Sequence

from proxyinit.errors import ProxyInitError


class InjectError(ProxyInitError):
    """A failure of the injector with one message for people."""


class ValuesError(InjectError):
    """The chart's values can't be used; `problems` has every mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("the chart's values can't be used: " + "; ".join(problems))
        self.problems = tuple(problems)


class Unrenderable(InjectError):
    """Values and annotations together describe no container that could run."""


class Malformed(InjectError):
    """An object that says what it is, and is not shaped like it."""


class BadReview(InjectError):
    """A body is no AdmissionReview, or one that nobody could answer: status 400."""


class NotKnown(InjectError):
    """Without the Kubernetes API nothing is known: status 500, failurePolicy rules."""
