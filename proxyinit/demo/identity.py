"""The chapters on identity: who certifies, a pod that is certified, and its peer."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cryptography.x509 import Certificate, load_pem_x509_certificate

from identity.testing import Account, programs
from identity.testing.peers import Meeting, Peer, meet, talking
from proxyinit.demo import tables
from proxyinit.demo.checks import (
    NotAsExpected,
    require_authorities,
    require_identity,
    require_meeting,
    require_refusal,
    require_renewals,
)
from proxyinit.demo.expectations import (
    APP_PORT,
    CERTIFICATE_LIFETIME,
    CLOCK_SKEW,
    LINKERD_ARGUMENTS,
    MIN_REFRESH,
    PROXY_IN,
    WORKLOADS,
    Endpoint,
)
from proxyinit.demo.narrator import INDENT, WIDTH
from proxyinit.demo.stage import Chapter, Stage
from proxyinit.lab import PROXY_UID, Namespace
from proxyinit.lab.programs import Program

LIMIT_S = 20
"""How long to wait for what takes a second."""
LOOK_S = 0.02
AGENT_PORT = 4192
CALLS_AT_LEAST = 20
OWNER_ONLY = 0o600

ACCOUNTS = {workload: Account("shop", workload) for workload in WORKLOADS}


# === programs ===


def _start(  # noqa: PLR0913  (the parts of a process)
    stage: Stage,
    namespace: Namespace,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    log: str,
    uid: int = 0,
) -> Program:
    """Start proxy-identity inside; it ends with the lab."""
    stage.interrupts.check()
    argv = [stage.identity_program, *arguments]
    shape = {"COLUMNS": str(WIDTH - INDENT), "NO_COLOR": "1"}
    program = Program(
        namespace,
        argv,
        uid=uid,
        environment={**shape, **(environment or {})},
        folder=stage.folder,
        log=stage.folder / f"{log}.log",
    )
    return stage.lab.keep(program)


def _finish(stage: Stage, program: Program) -> tuple[int, str]:
    """Wait for the end of a program; its status and what it printed."""
    _until(stage, lambda: program.status is not None, "an end", program.log)
    return program.status or 0, program.printed


def _tell(stage: Stage, arguments: Sequence[str], log: str) -> str:
    """Run proxy-identity to its end, as root; what it printed."""
    environment = {"LINKERD2_PROXY_IDENTITY_MIN_REFRESH": MIN_REFRESH}
    program = _start(stage, stage.lab.client, arguments, environment, log=log)
    status, printed = _finish(stage, program)
    if status:
        raise NotAsExpected(
            f"proxy-identity {' '.join(arguments)} ended with status {status}, "
            "expected 0",
            printed,
        )
    return printed


def _wait_ready(
    stage: Stage, namespace: Namespace, program: Program, port: int
) -> None:
    def ready() -> bool:
        if program.status is not None:
            raise NotAsExpected(
                f"proxy-identity of {program.log.stem} ended with status "
                f"{program.status}, expected it to run",
                program.printed,
            )
        return namespace.run(_is_ready, port)

    _until(stage, ready, f"{program.log.stem} to be ready", program.log)


def _until(stage: Stage, reached: Callable[[], bool], what: str, log: Path) -> None:
    """Wait for something that a program does, while signals are noticed."""
    deadline = time.monotonic() + LIMIT_S
    while not reached():
        stage.interrupts.check()
        if time.monotonic() > deadline:
            raise NotAsExpected(
                f"expected {what} within {LIMIT_S} s",
                log.read_text(encoding="utf-8", errors="replace"),
            )
        time.sleep(LOOK_S)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    with suppress(OSError):
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    return False


# === the chapters' acts ===


def make_authorities(stage: Stage) -> None:
    """Make the root and the issuer, and look at them."""
    programs.prepare(stage.folder)
    for words in (programs.ROOT, programs.ISSUER):
        stage.narrator.command(["proxy-identity", *words])
        _tell(stage, words, "-".join(words[:2]))
    root, issuer = (
        _certificate(stage.folder / name) for name in ("ca.crt", "issuer/tls.crt")
    )
    stage.narrator.table(tables.authorities([root, issuer]))
    require_authorities(root, issuer)
    for name in ("ca.key", "issuer/tls.key"):
        mode = (stage.folder / name).stat().st_mode & 0o777
        if mode != OWNER_ONLY:
            raise NotAsExpected(f"expected {name} with mode 0600, found 0{mode:o}")
    stage.narrator.proved("the issuer leads to the root; only the owner reads the keys")


def _certificate(path: Path) -> Certificate:
    try:
        return load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise NotAsExpected(f"expected a certificate in {path}: {error}") from error


def start_service(stage: Stage) -> None:
    """Start the service in a namespace of its own; ask it for what it must refuse."""
    programs.write_service_certificate(stage.folder)
    programs.write_tokens(stage.folder, ACCOUNTS)
    place = stage.lab.add("issuer")
    arguments = programs.service_arguments(CERTIFICATE_LIFETIME, CLOCK_SKEW)
    stage.narrator.command(["proxy-identity", *arguments])
    service = _start(stage, place.namespace, arguments, log="issuer")
    _wait_ready(stage, place.namespace, service, programs.ADMIN_PORT)
    stage.narrator.proved("it is ready, in a namespace of its own")
    _refuse(stage)


def _refuse(stage: Stage) -> None:
    """Ask for one workload's name with the token of the other."""
    programs.make_directory(stage.folder / "stranger")
    environment = {
        **_environment(stage, "web"),
        "LINKERD2_PROXY_IDENTITY_DIR": "stranger",
        "LINKERD2_PROXY_IDENTITY_LOCAL_NAME": WORKLOADS["api"],
    }
    words = ["certify", "--timeout", "1s"]
    asked = _start(
        stage, stage.lab.pod, words, environment, log="stranger", uid=PROXY_UID
    )
    require_refusal(
        *_finish(stage, asked), "requested identity did not match provided token"
    )
    if (stage.folder / "stranger/tls.crt").exists():
        raise NotAsExpected("expected no certificate for a stranger, found one")
    stage.narrator.proved("who asks for api's name with web's token gets nothing")


def _environment(stage: Stage, workload: str) -> dict[str, str]:
    service = stage.lab.neighbours["issuer"].addresses[4]
    wanted = programs.client_environment(
        stage.folder, workload, ACCOUNTS[workload], service
    )
    return {**wanted, "LINKERD2_PROXY_IDENTITY_MIN_REFRESH": MIN_REFRESH}


def certify(stage: Stage) -> None:
    """Let both pods be certified, and show the first."""
    api = stage.lab.add("api").namespace
    stage.proxy_init(LINKERD_ARGUMENTS, pod=api)
    stage.narrator.command(["proxy-identity", "run"])
    pods = {"web": stage.lab.pod, "api": api}
    agents = {
        workload: _start(
            stage,
            pod,
            ["run"],
            _environment(stage, workload),
            log=workload,
            uid=PROXY_UID,
        )
        for workload, pod in pods.items()
    }
    for workload, agent in agents.items():
        _wait_ready(stage, pods[workload], agent, AGENT_PORT)
    stage.narrator.command(["proxy-identity", "show", "web"])
    stage.narrator.printed(_tell(stage, ("show", "web"), "show"))
    report = json.loads(_tell(stage, ("show", "web", "--format", "json"), "report"))
    require_identity(report, WORKLOADS["web"])
    stage.narrator.proved("the certificate is web's, of its key, and leads to the root")


def introduce(stage: Stage) -> None:
    """Let the two pods meet, and turn away who is somebody else."""
    place = stage.lab.neighbours["api"]
    to = Endpoint(place.addresses[4], APP_PORT)
    peer = Peer(
        place.namespace, stage.folder / "api", PROXY_IN, caller=WORKLOADS["web"]
    )
    stage.lab.keep(peer)
    try:
        met = _meet(stage, "web", to, WORKLOADS["api"])
    except OSError as error:
        raise NotAsExpected(
            f"expected web and api to meet: {error}", "\n".join(peer.failures)
        ) from error
    stage.narrator.table(tables.meeting(met, ("web", "api")))
    require_meeting(met, WORKLOADS["web"], WORKLOADS["api"], to)
    stage.narrator.proved(
        f"web called {to}; api's proxy answered at port {PROXY_IN}, over TLS 1.3"
    )
    _require_turned_away(stage, "api", to, WORKLOADS["api"])
    _require_turned_away(stage, "web", to, WORKLOADS["web"])
    stage.narrator.proved(
        "whoever is not web, or wants to meet another, is turned away"
    )


def _require_turned_away(stage: Stage, who: str, to: Endpoint, expected: str) -> None:
    """Raises `NotAsExpected` when two meet that should not."""
    try:
        met = _meet(stage, who, to, expected)
    except (ssl.SSLError, ConnectionResetError):
        return
    raise NotAsExpected(
        f"expected {who} to be turned away when it calls {expected} at {to}, "
        f"found {met.client.name} and {met.server.name} meet"
    )


def _meet(stage: Stage, who: str, to: Endpoint, expected: str) -> Meeting:
    """Connect from the first pod, past the redirect, with somebody's certificate."""
    directory = stage.folder / who
    return stage.lab.pod.run(
        lambda: meet(directory, to.address, to.port, expected), uid=PROXY_UID
    )


def renew(stage: Stage) -> None:
    """Let both pods renew while one calls the other without pause."""
    place = stage.lab.neighbours["api"]
    to = place.addresses[4], APP_PORT
    paths = {workload: stage.folder / workload / "tls.crt" for workload in WORKLOADS}
    before = {workload: _certificate(path) for workload, path in paths.items()}
    log = stage.folder / "web.log"

    def renewed() -> bool:
        return bool(talk.failures) or all(
            _certificate(paths[name]) != before[name] for name in paths
        )

    with (
        stage.narrator.working("waiting for both certificates to be renewed"),
        talking(stage.lab.pod, stage.folder / "web", to, WORKLOADS["api"]) as talk,
    ):
        _until(stage, renewed, "renewed certificates", log)
        enough = talk.count + CALLS_AT_LEAST
        _until(stage, lambda: talk.count >= enough, "more calls", log)
    found = [(name, before[name], _certificate(paths[name])) for name in paths]
    stage.narrator.table(tables.renewals(found))
    require_renewals(talk, at_least=2 * CALLS_AT_LEAST)
    stage.narrator.proved(
        f"{talk.count:,} connections with old and new certificates: 0 failed"
    )


CHAPTERS = (
    Chapter(
        title="Who certifies: a root and an issuer",
        why=(
            "All pods of a mesh trust one root. Its key signs an issuer, and can then "
            "be locked away; the issuer signs the certificates of the pods."
        ),
        act=make_authorities,
    ),
    Chapter(
        title="The service that certifies",
        why=(
            "A pod shows it the token that Kubernetes gave to its account. The service "
            "verifies the token with the cluster's keys, and signs a certificate for "
            "that account's name only. Certificates usually last a day; here a few "
            "seconds, so that you can see one renewed."
        ),
        act=start_service,
    ),
    Chapter(
        title="A pod gets its identity",
        why=(
            "proxy-identity makes a key, which never leaves the pod, has it certified, "
            "and keeps the certificate fresh. It runs as the proxy's user, so its "
            "traffic is not redirected. Linkerd's environment variables tell it all "
            "it needs. The app's pod becomes web; a second one, api, is made alike."
        ),
        act=certify,
    ),
    Chapter(
        title="Two pods that know each other",
        why=(
            "With their certificates both prove who they are, and all between them is "
            "encrypted. An address could be anybody's; a key is not."
        ),
        act=introduce,
    ),
    Chapter(
        title="A renewal that nobody notices",
        why=(
            "At 70 % of its life a certificate is replaced, together with its chain, "
            "in one step. Meanwhile web goes on calling api; both read their files "
            "anew for each connection."
        ),
        act=renew,
    ),
)
