"""The webhook without its server: a body comes in, a status and a body go out.

What it answers when something is wrong, and what that means for the object::

    body empty                              200, empty            failurePolicy
    body over 10 MiB                        500                   failurePolicy
    no AdmissionReview, unknown version     400                   failurePolicy
    no request, uid or object               400                   failurePolicy
    object not shaped like its kind         200, allowed: false   refused: it is none
    object of a kind without pods           200, allowed: true    made as it is
    annotation that can't be read           200, allowed: true    injected without it,
                                                 and a warning
    namespace not in memory, API gone       500                   failurePolicy
    owner not in memory, API gone           200, allowed: true    injected without
                                                 owner's label
    values or trust roots unusable          the last good ones are used
    certificate unusable                    the last good one is used
    a bug of ours                           500                   failurePolicy

Every line of it leaves a reason in the log. Where failurePolicy rules, `Ignore` makes
the object as it is, and `Fail` refuses it until we can answer: `allowed: false` is
sent for no other reason than that the object itself is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import orjson

from proxyinit.inject import admission, events, owner, workload
from proxyinit.inject.admission import Review
from proxyinit.inject.configuration import Configuration
from proxyinit.inject.errors import BadReview, InjectError, Malformed
from proxyinit.inject.metrics import Metrics, config
from proxyinit.inject.owner import Owner
from proxyinit.inject.recipe import Recipe, Rendered, render
from proxyinit.inject.review import Fate, Known, Outcome, judge
from proxyinit.inject.values import Values
from proxyinit.inject.workload import Object, Workload
from proxyinit.logs import Log

MOST_BYTES = 10 * 2**20
MOST_KEPT = 2000
"""Renderings in memory, of some 20 KiB each."""
TOO_LARGE = f"the body is larger than {MOST_BYTES // 2**20} MiB"


class Cluster(Protocol):
    """What is asked about an object's surroundings."""

    async def annotations(self, namespace: str) -> Mapping[str, str]:
        """A namespace's annotations; raises `NotKnown`."""

    async def owned(self, kind: str, namespace: str, name: str) -> Object | None:
        """A ReplicaSet or a Job; None if nobody knows it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes


class Webhook:
    """Answers reviews; `creator` is what injected pods say who injected them.

    What is logged, counted and sent of an outcome goes through `later`: the API server
    need not wait for it. With `verbose` objects and patches are logged whole, whatever
    secrets they hold.
    """

    def __init__(  # noqa: PLR0913  (its parts)
        self,
        *,
        configuration: Configuration,
        cluster: Cluster,
        metrics: Metrics,
        send: Callable[[events.Event], None],
        log: Log,
        creator: str,
        verbose: bool = False,
        later: Callable[[Callable[[], None]], object] = lambda work: work(),
    ) -> None:
        self._configuration = configuration
        self._cluster = cluster
        self._metrics = metrics
        self._send = send
        self._log = log
        self._creator = creator
        self._verbose = verbose
        self._later = later
        self._kept_for: Values | None = None
        self._kept: dict[Recipe, Rendered] = {}

    async def answer(self, body: bytes) -> Answer:
        """Answer a body; never raises."""
        begun_s = time.perf_counter()
        try:
            found = await self._answer(body)
        except BadReview as error:
            found = self._failure(400, str(error))
        except InjectError as error:
            found = self._failure(500, str(error))
        except Exception as error:  # noqa: BLE001  (the outermost: it stays up)
            found = self._failure(500, f"{type(error).__name__}: {error}")
        self._metrics.took(time.perf_counter() - begun_s)
        return found

    def refuse_size(self) -> Answer:
        """Answer a body that nobody is going to read."""
        return self._failure(500, TOO_LARGE)

    def _failure(self, status: int, why: str) -> Answer:
        self._log.error(f"failed to run webhook handler. Reason: {why}")
        self._metrics.failed(status)
        return Answer(status, f"{why}\n".encode())

    async def _answer(self, body: bytes) -> Answer:
        if not body:
            self._log.warning("received empty payload")
            return Answer(200, b"")
        review = admission.parse(body)
        self._log.info(f'received admission review request "{review.uid}"')
        try:
            return Answer(200, await self._review(review))
        except Malformed as error:
            self._log.error(f"failed to run webhook handler. Reason: {error}")
            return Answer(200, admission.deny(review, error))

    async def _review(self, review: Review) -> bytes:
        found = workload.read(review.object, review.kind)
        self._log.info(f"received {found.resource_name}")
        namespace = review.namespace or found.namespace
        ns_annotations = await self._cluster.annotations(namespace)
        whose = await self._owner(found, namespace)
        known = Known(
            values=self._configuration.current(),
            namespace=namespace,
            ns_annotations=ns_annotations,
            owner=whose,
            creator=self._creator,
        )
        outcome = judge(found, known, self._render)
        self._later(partial(self._tell, found, known, outcome, review))
        if self._verbose:
            self._log.debug(f"request object bytes: {_text(review.object)}")
            self._log.debug(f"injection patch: {(outcome.patch or b'').decode()}")
        return admission.allow(review, outcome.patch, outcome.warnings)

    def _render(self, values: Values, made: Recipe) -> Rendered:
        """Render each recipe once, as long as the values stay."""
        if values is not self._kept_for:
            self._kept_for, self._kept = values, {}
        found = self._kept.get(made)
        if found is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            found = self._kept[made] = render(values, made)
        return found

    async def _owner(self, found: Workload, namespace: str) -> Owner | None:
        """Whose pod it is; of other kinds nobody asks."""
        if found.kind.lower() != owner.POD:
            return None
        whose = owner.direct(found.document)
        if whose is None:
            return Owner(owner.POD, found.name)
        if not owner.has_above(whose):
            return whose
        behind = await self._cluster.owned(whose.kind, namespace, whose.name)
        return whose if behind is None else owner.above(whose, behind)

    def _tell(
        self, found: Workload, known: Known, outcome: Outcome, review: Review
    ) -> None:
        """Tell of an outcome; a bug in that has its reason in the log as well."""
        try:
            self._account(found, known, outcome, review)
        except Exception as error:  # noqa: BLE001  (the outermost: the answer is out)
            what = f"{type(error).__name__}: {error}"
            self._log.error(f"failed to tell of {found.resource_name}. Reason: {what}")

    def _account(
        self, found: Workload, known: Known, outcome: Outcome, review: Review
    ) -> None:
        """Log, count, and send the event that belongs to an outcome."""
        kind = known.owner.counted_as if known.owner else ""
        decision = outcome.decision
        own = found.annotations if found.template is not None else found.top_annotations
        counted = (decision.annotation_at, config(own))
        self._metrics.asked(kind, known.namespace, *counted)
        if outcome.fate is Fate.SKIPPED and found.kind.lower() != owner.POD:
            return
        reasons = None
        if outcome.fate is Fate.SKIPPED:
            reasons = tuple(reason.code for reason in decision.reasons)
            why = ", ".join(reason.text for reason in decision.reasons)
            self._log.info(f"skipped {found.resource_name}: {why}")
        else:
            what = "injection" if outcome.fate is Fate.INJECTED else "annotation"
            self._log.info(f"{what} patch generated for: {found.resource_name}")
        self._metrics.answered(kind, known.namespace, reasons, *counted)
        if not review.dry_run:
            self._send_event(known, outcome)

    def _send_event(self, known: Known, outcome: Outcome) -> None:
        """Tell the owner's people; bare pods have no owner, and are not there yet."""
        whose = known.owner
        if whose is None or whose.reference is None:
            return
        if outcome.fate is Fate.INJECTED:
            self._send(events.injected(known.namespace, whose))
        elif outcome.fate is Fate.SKIPPED:
            why = ", ".join(reason.text for reason in outcome.decision.reasons)
            self._send(events.skipped(known.namespace, whose, why))


def _text(found: Object) -> str:
    return orjson.dumps(found).decode()
