"""Keeping a certificate fresh: days of it in milliseconds, by clocks of our own."""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import logging
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from identity import directory, keys, store
from identity.agent import STEP_S, Agent
from identity.config import Config, Service
from identity.credentials import Credential, KeyPair, key_pem, spki
from identity.errors import (
    BadKeyPair,
    CallFailed,
    CertificateRejected,
    ClientRefused,
    DirectoryUnusable,
    IdentityError,
    ServiceUnreachable,
    TokenUnusable,
)
from identity.metrics import OUTCOMES, Metrics
from identity.store import Disk
from identity.testing import CA, new_key, project, whole_second
from identity.trust import Anchors

NAME = "web.emojivoto.serviceaccount.identity.linkerd.cluster.local"
ROOT = CA()
ISSUER = ROOT.issuer()
ANCHORS = Anchors.parse(ROOT.pem.decode())
START = whole_second()
SECOND = dt.timedelta(seconds=1)
HOUR = 3600.0
DAY = 24 * HOUR + 20
"""What Linkerd's service certifies for, in seconds."""

SECRET = "eyJhbGciOiJub25lIn0.secret"  # noqa: S105  (nobody's)


class Over(BaseException):
    """The script of a test has come to its end."""


@dataclass
class FakeClock:
    """Two clocks that move only by sleeping, and by what a test does to them."""

    wall: dt.datetime = START
    steady: float = 1000.0
    events: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    longest: float = 0.0

    def now(self) -> dt.datetime:
        return self.wall

    def ticks(self) -> float:
        return self.steady

    async def sleep(self, seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        self.wall += dt.timedelta(seconds=seconds)
        self.steady += seconds
        while self.events and self.events[0][0] <= self.steady - 1000:
            self.events.pop(0)[1]()
        await asyncio.sleep(0)

    def jump(self, seconds: float) -> Callable[[], None]:
        """Set the wall clock forward or back; or, forward: wake from a suspend."""

        def set_wall() -> None:
            self.wall += dt.timedelta(seconds=seconds)

        return set_wall


@dataclass
class Attempt:
    """One call of the fake service: when by the steady clock, and with what."""

    at: float
    pair: KeyPair
    shown: Credential | None
    trusted: Anchors


@dataclass
class FakeService:
    """Follows a script: seconds of lifetime to certify for, or errors to raise."""

    clock: FakeClock
    script: list[float | BaseException]
    attempts: list[Attempt] = field(default_factory=list)

    async def certify(
        self, config: Config, pair: KeyPair, credential: Credential | None = None
    ) -> Credential:
        if not self.script:
            raise Over
        at = self.clock.steady - 1000
        self.attempts.append(Attempt(at, pair, credential, config.anchors))
        step = self.script.pop(0)
        if isinstance(step, BaseException):
            raise step
        expiry = self.clock.wall + dt.timedelta(seconds=step)
        leaf = ISSUER.leaf(
            NAME,
            public_key=pair.key.public_key(),
            not_before=self.clock.wall - SECOND,
            not_after=expiry,
        )
        return Credential(
            key_pem=key_pem(pair.key),
            chain_pem=leaf.pem.decode(),
            names=(NAME,),
            expiry=expiry,
        )


class Calm(random.Random):
    """Chance that always takes the first possibility."""

    def random(self) -> float:
        return 0.0


@dataclass
class World:
    """An agent with everything around it."""

    agent: Agent
    clock: FakeClock
    service: FakeService
    folder: Path

    def play(self, *script: float | BaseException) -> list[float]:
        """Run until the script has ended; when the attempts were, in seconds."""
        self.service.script = list(script)
        before = len(self.service.attempts)
        with pytest.raises(Over):
            asyncio.run(self.agent.run())
        return [attempt.at for attempt in self.service.attempts[before:]]

    def restarted(self, **changes: object) -> World:
        """A new process with the same directory; `changes` are of the config."""
        config = replace(self.agent.config, **changes)  # type: ignore[arg-type]  # fields
        return make_world(self.folder, config, self.clock)


def make_world(folder: Path, config: Config, clock: FakeClock) -> World:
    """An agent in a folder."""
    service = FakeService(clock, [])
    agent = Agent(
        config=config,
        certifier=service,
        clock=clock,
        metrics=Metrics(),
        random=Calm(),
    )
    return World(agent, clock, service, folder)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A workload that has not been certified yet."""
    config = Config(
        directory=str(tmp_path),
        name=NAME,
        anchors=ANCHORS,
        token_file="/nowhere",  # noqa: S106  (a path)
        service=Service(host="localhost.", port=1),
    )
    return make_world(tmp_path, config, FakeClock())


@pytest.fixture(autouse=True)
def nothing_secret_in_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a test logs, at any level, shows no token, key or request."""
    caplog.set_level(logging.DEBUG)
    yield
    for record in caplog.get_records("call"):
        text = record.getMessage() + str(record.exc_info or "")
        assert not re.search(r"eyJ|PRIVATE KEY|REQUEST-|\\x81\\x87|\\x8", text), text


def metric(world: World, name: str) -> float | None:
    """The value of a series, as scraped."""
    found = re.search(
        rf"^{re.escape(name)} (\S+)$",
        world.agent.metrics.render().decode(),
        re.MULTILINE,
    )
    return found and float(found[1])


DOWN = ServiceUnreachable("10.0.0.1 port 8080: Connection refused")
REFUSED = ClientRefused("the service refused our certificate")


# === when ===


def test_renewed_at_seventy_percent(world: World) -> None:
    """At once, then after 70 % of each certificate's life, as upstream."""
    assert world.play(DAY, DAY, 10, DAY) == [0, 60494, 120988, 120998]


def test_failures_are_retried_soon(world: World) -> None:
    """1 s, doubling to 60 s, whatever is left of the certificate; then as usual."""
    times = world.play(DAY, *[DOWN] * 8, DAY, DAY)
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits == [60494, 1, 2, 4, 8, 16, 32, 60, 60, 60494]


def test_a_success_ends_the_row_of_failures(world: World) -> None:
    """The next failure is retried as soon as the first one was."""
    times = world.play(DAY, DOWN, DOWN, DAY, DOWN, DAY)
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits == [60494, 1, 2, 60494, 1]


def test_jitter_is_drawn_for_each_wait(world: World) -> None:
    """A fleet certified at one instant renews within 5 % before it is due."""
    world.agent.random = random.Random(7)  # noqa: S311  (a fleet's chance)
    times = world.play(DAY, DAY, DAY)
    for earlier, later in pairwise(times):
        assert 60494 * 0.95 <= later - earlier < 60494


def test_a_failed_renewal_costs_nothing(world: World) -> None:
    """Until there is a better one, the certificate in use stays, on disk and off."""
    world.play(DAY, CertificateRejected("no"), TokenUnusable("no"), CallFailed("", ""))
    credential = world.agent.credential
    assert credential is not None
    assert world.agent.ready()
    assert (world.folder / "tls.crt").read_text() == credential.chain_pem


def test_recovery_after_expiry(world: World) -> None:
    """An hour's outage past the end: not ready, retried each minute, then ready."""
    ready: list[bool] = []

    class Watching(FakeService):
        async def certify(
            self, config: Config, pair: KeyPair, credential: Credential | None = None
        ) -> Credential:
            ready.append(world.agent.ready())
            return await super().certify(config, pair, credential)

    world.service = Watching(world.clock, [])
    world.agent.certifier = world.service
    times = world.play(100, *[DOWN] * 60, DAY)
    shown = [attempt.shown is not None for attempt in world.service.attempts]
    assert ready[:2] == [False, True]
    assert not any(ready[20:61])
    assert not any(shown[20:]), "an expired certificate is not presented"
    assert max(b - a for a, b in pairwise(times)) <= 70
    assert world.agent.ready()


@pytest.mark.parametrize(
    ("jump", "attempt"),
    [
        pytest.param(3 * DAY, HOUR, id="suspended for days, or clock set forward"),
        pytest.param(60494 - HOUR, HOUR, id="woken when it is due"),
        pytest.param(-3 * DAY, 60494, id="clock set back: the steady one decides"),
    ],
)
def test_clocks_that_jump(world: World, jump: float, attempt: float) -> None:
    """A renewal that became due is made within seconds; none is forgotten."""
    world.clock.events = [(HOUR, world.clock.jump(jump))]
    _, second = world.play(DAY, DAY)
    assert attempt <= second <= attempt + 2 * STEP_S
    assert world.clock.longest <= STEP_S, "it looks at the clocks often"


# === with what ===


def test_first_without_then_with_certificate(world: World) -> None:
    """First contact shows none; renewals show the one in use."""
    world.play(DAY, DAY, DAY)
    shown = [attempt.shown for attempt in world.service.attempts]
    assert shown[0] is None
    assert shown[1] is not None
    assert shown[2] is not None
    assert shown[1].chain_pem != shown[2].chain_pem


@pytest.mark.parametrize(
    "error", [REFUSED, CallFailed("Socket closed", "UNAVAILABLE")], ids=["alert", "EOF"]
)
def test_a_certificate_that_is_refused_is_left_out(
    world: World, error: IdentityError
) -> None:
    """Valid for us but not for the service: the next attempt goes without it."""
    world.play(DAY, error, error, DAY, DAY)
    shown = [attempt.shown is not None for attempt in world.service.attempts]
    assert shown == [False, True, False, True, True]


def test_the_same_request_for_ever(world: World) -> None:
    """Key and CSR stay what the bootstrap wrote, byte for byte."""
    world.play(DAY, DAY, DAY)
    requests = {attempt.pair.csr_der for attempt in world.service.attempts}
    assert requests == {(world.folder / "csr.der").read_bytes()}
    key = (world.folder / "tls.key").read_text()
    assert key == key_pem(world.service.attempts[0].pair.key)


def test_a_new_key_for_each_renewal(world: World) -> None:
    """With --rotate-key no key is certified twice, and the set holds the right one."""
    world.agent.rotate_key = True
    world.play(DAY, DAY, DOWN, DAY)
    pairs = [attempt.pair for attempt in world.service.attempts]
    assert len({spki(pair.key) for pair in pairs}) == 4
    assert pairs[0].csr_der == (world.folder / "csr.der").read_bytes()
    for pair in pairs[1:]:
        KeyPair.load(keys.key_der(pair.key), pair.csr_der)
    assert (world.folder / "tls.key").read_text() == key_pem(pairs[-1].key)


def test_a_pair_is_made_if_there_is_none(world: World) -> None:
    """Where no bootstrap has run, key.p8 and csr.der are made, for the name."""
    world.play(DAY)
    assert sorted(p.name for p in world.folder.iterdir() if not p.is_symlink()) == [
        "..set-1",
        "csr.der",
        "key.p8",
    ]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda folder: (folder / "csr.der").unlink(), id="no CSR"),
        pytest.param(lambda folder: (folder / "key.p8").unlink(), id="no key"),
        pytest.param(lambda folder: (folder / "key.p8").write_text("x"), id="junk"),
        pytest.param(
            lambda folder: (folder / "key.p8").write_bytes(
                keys.key_der(keys.generate())
            ),
            id="of another key",
        ),
    ],
)
def test_half_a_pair_is_told(world: World, damage: Callable[[Path], object]) -> None:
    """A pair that is not one is an error that names the files; `run` goes on trying."""
    world.play(DAY)
    damage(world.folder)
    with pytest.raises(BadKeyPair, match=r"key.p8 and csr.der: .*; run proxy-identity"):
        directory.load_pair(world.agent.config, disk=Disk(), generate=keys.generate)
    with pytest.raises(BadKeyPair):
        asyncio.run(world.agent.certify(SECOND))


# === restarts ===


def test_a_restart_goes_on_where_it_was(world: World) -> None:
    """With a good certificate there it is ready at once, and renews in time."""
    world.play(DAY)
    first = world.agent.credential
    world.clock.wall += dt.timedelta(hours=1)
    world.clock.steady += HOUR
    again = world.restarted()
    (at,) = again.play(DAY)
    left = DAY - 60494 - HOUR
    assert at == pytest.approx(60494 + HOUR + left * 0.7)
    assert again.service.attempts[0].shown is not None
    assert first is not None
    assert again.service.attempts[0].shown.chain_pem == first.chain_pem


def new_pair(world: World) -> dict[str, object]:
    """What a bootstrap does when it is run again."""
    key = keys.generate()
    files = {"key.p8": keys.key_der(key), "csr.der": keys.csr_der(key, NAME)}
    store.write_pair(str(world.folder), files, Disk())
    return {}


def break_file(name: str, text: str = "junk") -> Callable[[World], dict[str, object]]:
    """Puts junk where a file of the set was."""

    def change(world: World) -> dict[str, object]:
        (world.folder / name).write_text(text)
        return {}

    return change


ENCRYPTED = (
    new_key()
    .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    .decode()
)


def remove_key(world: World) -> dict[str, object]:
    """The set has lost its key."""
    (world.folder / "..data" / "tls.key").unlink()
    return {}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda _: {"anchors": Anchors.parse((ROOT.pem + CA().pem).decode())},
            id="other anchors",
        ),
        pytest.param(lambda _: {"name": "other.example"}, id="other name"),
        pytest.param(new_pair, id="other key"),
        pytest.param(break_file("tls.crt"), id="broken certificate"),
        pytest.param(break_file("tls.key"), id="broken key"),
        pytest.param(break_file("tls.key", ENCRYPTED), id="encrypted key"),
        pytest.param(remove_key, id="no key"),
    ],
)
def test_a_restart_certifies_anew_if_anything_changed(
    world: World, change: Callable[[World], dict[str, object]]
) -> None:
    """A certificate that would not be accepted today is not gone on with."""
    world.play(DAY)
    again = world.restarted(**change(world))
    before = world.clock.steady - 1000
    assert again.play(DAY)[0] == before


# === trust anchors ===


def test_new_trust_anchors_are_taken_at_once(world: World, tmp_path: Path) -> None:
    """Read by content, where a link leads now; the next set holds and heeds them."""
    both = Anchors.parse((ROOT.pem + CA().pem).decode())
    project(tmp_path / "roots", {"ca.crt": ROOT.pem})
    world.agent.anchors_file = str(tmp_path / "roots" / "ca.crt")
    rotate = partial(project, tmp_path / "roots", {"ca.crt": both.text.encode()})
    world.clock.events = [(1000, rotate)]
    times = world.play(DAY, DOWN, DAY)
    assert times == [0, 1000, 1001]
    assert [attempt.trusted for attempt in world.service.attempts] == [
        world.agent.config.anchors if at else ANCHORS for at in times
    ]
    assert (world.folder / "ca.crt").read_text() == both.text
    assert world.restarted().play(DAY) != [1001], "goes on with what is in the set"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(Path.unlink, "No such file or directory", id="gone"),
        pytest.param(lambda p: p.write_text(""), "no certificates found", id="empty"),
        pytest.param(lambda p: p.write_bytes(b"\xff"), "no certificates", id="binary"),
        pytest.param(
            lambda p: p.write_text(ANCHORS.text[:-40]), "has no END line", id="cut off"
        ),
    ],
)
def test_trust_anchors_that_are_none_change_nothing(
    world: World,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Path], None],
    said: str,
) -> None:
    """It is told once, and those in use stay, for renewals too."""
    file = tmp_path / "roots.pem"
    file.write_text(ANCHORS.text)
    world.agent.anchors_file = str(file)
    world.clock.events = [(1000, partial(change, file))]
    assert world.play(DAY, DAY) == [0, 60494]
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    (told,) = warnings
    assert told.startswith(f"Keeping the trust anchors in use: {file}: ")
    assert said in told
    assert world.service.attempts[1].trusted == ANCHORS


# === errors that are not the service's ===


class FullDisk(Disk):
    """Has no room while `full`."""

    full = True

    def create(self, path: str, data: bytes, mode: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        super().create(path, data, mode)


def test_a_full_disk_is_waited_for(world: World) -> None:
    """What can't be written is not taken into use; it is tried again."""
    world.play(DAY)
    old = world.agent.credential
    world.agent.disk = disk = FullDisk()
    world.play(DAY, DAY)
    assert old is not None
    assert world.agent.credential is not None
    assert world.agent.credential.chain_pem == old.chain_pem
    assert (world.folder / "tls.crt").read_text() == old.chain_pem
    assert metric(world, 'control_identity_attempts_total{outcome="directory"}') == 2
    disk.full = False
    world.play(DAY)
    assert world.agent.credential.chain_pem != old.chain_pem


def test_what_nobody_thought_of_is_survived(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake of ours is logged by its kind, without its words, and retried."""
    assert world.play(RuntimeError(SECRET), MemoryError(), DAY) == [0, 1, 3]
    said = [r.getMessage() for r in caplog.records if r.name == "identity.agent"]
    assert said[0] == (
        "Failed to obtain identity: unexpected RuntimeError; again in 1.0 s"
    )


def test_a_missing_directory_is_never_made(world: World, tmp_path: Path) -> None:
    """Neither by `run`, which waits for it, nor by `certify`, which ends."""
    gone = replace(world.agent.config, directory=str(tmp_path / "gone"))
    world.agent.config = gone
    with pytest.raises(DirectoryUnusable, match=r"mount a volume there"):
        asyncio.run(world.agent.certify(60 * SECOND))
    world.clock.events = [(100, (tmp_path / "gone").mkdir)]
    assert world.play(DAY)[0] >= 100


# === certify ===


def test_certify_ends_with_the_first_success(world: World) -> None:
    """Failures are retried within the time that is given."""

    world.service.script = [DOWN, DOWN, DAY]
    credential = asyncio.run(world.agent.certify(30 * SECOND))
    assert (world.folder / "tls.crt").read_text() == credential.chain_pem
    assert [attempt.at for attempt in world.service.attempts] == [0, 1, 3]


def test_certify_gives_up(world: World) -> None:
    """After its time it says why the last attempt failed."""

    class Stuck(FakeClock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(60 * seconds)

    world.agent.clock = Stuck()
    world.service.script = [DOWN]
    with pytest.raises(IdentityError) as caught:
        asyncio.run(world.agent.certify(0.05 * SECOND))
    assert str(caught.value) == f"not certified within 0.05 s: {DOWN}"


# === metrics ===


def test_metrics_as_the_proxy_names_them(world: World) -> None:
    """Expiry, refresh and results under upstream's names; ours beside them."""
    for result in ("ok", "error"):
        name = f'control_identity_cert_refreshes_total{{result="{result}"}}'
        assert metric(world, name) == 0, "there from the start"
    world.play(DOWN, CertificateRejected("x"), DAY, TokenUnusable("x"), DAY)
    credential = world.agent.credential
    assert credential is not None
    prefix = "control_identity_cert_"
    assert (
        metric(world, f"{prefix}expiration_timestamp_seconds")
        == credential.expiry.timestamp()
    )
    refreshed = metric(world, f"{prefix}refresh_timestamp_seconds")
    assert refreshed == credential.expiry.timestamp() - DAY
    assert metric(world, f'{prefix}refreshes_total{{result="ok"}}') == 2
    assert metric(world, f'{prefix}refreshes_total{{result="error"}}') == 1
    due = metric(world, "control_identity_next_attempt_timestamp_seconds")
    assert due == refreshed + 60494
    for outcome in ("unreachable", "rejected", "token"):
        name = f'control_identity_attempts_total{{outcome="{outcome}"}}'
        assert metric(world, name) == 1


def test_every_outcome_has_a_name() -> None:
    """No error of the tree is counted as something else."""
    assert len(set(OUTCOMES.values())) == len(OUTCOMES)
    metrics = Metrics()
    for kind, name in OUTCOMES.items():
        metrics.failed(kind("x", "y") if kind is CallFailed else kind("x"))
        line = f'control_identity_attempts_total{{outcome="{name}"}} 1.0'
        assert line in metrics.render().decode()
    assert b"_created" not in metrics.render()
