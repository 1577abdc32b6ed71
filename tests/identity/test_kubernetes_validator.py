"""Tokens reviewed by the Kubernetes API, on its good days and its bad ones."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from identity.issuer import access, events
from identity.issuer.api import KubernetesClient
from identity.issuer.config import AUDIENCE
from identity.issuer.errors import (
    AccessDenied,
    ApiError,
    IssuerError,
    Malformed,
    NotEntitled,
    Overloaded,
    Refusal,
)
from identity.issuer.kubernetes import (
    ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    EventSender,
    TokenReviewer,
    check_access,
)
from identity.issuer.limit import Gate, Pace
from identity.issuer.policy import Account
from identity.testing import Answer, KubernetesApi, Signer, tokens
from identity.testing.authority import CA

WEB = Account("serviceaccount", "emojivoto", "web")
Made = TypeVar("Made")


class Quiet:
    """Takes what is told of calls."""

    def __init__(self) -> None:
        self.codes: list[str] = []

    def started(self) -> None:
        """A call begins."""

    def finished(self, code: str, method: str, seconds: float) -> None:
        """A call has ended."""
        assert method in ("GET", "POST")
        assert seconds >= 0
        self.codes.append(code)


@pytest.fixture
def client(api: KubernetesApi, tmp_path: Path) -> KubernetesClient:
    """A client with the files that a pod has."""
    return in_pod(api, tmp_path, Quiet())


def in_pod(api: KubernetesApi, folder: Path, observer: Quiet) -> KubernetesClient:
    """A client as pods have it."""
    api.write_mount(folder / "mount")
    found = access.in_cluster(api.environment(), folder / "mount")
    return KubernetesClient(found, observer)


def with_reviewer(
    client: KubernetesClient, use: Callable[[TokenReviewer], Coroutine[Any, Any, Made]]
) -> Made:
    """What a reviewer does in an event loop of its own."""
    with ThreadPoolExecutor(8) as threads:

        async def run() -> Made:
            return await use(TokenReviewer(client, Gate(Pace(1000)), threads))

        return asyncio.run(run())


def review(client: KubernetesClient, token: bytes) -> Account:
    """The account that one token proves."""
    return with_reviewer(client, lambda reviewer: reviewer.validate(token))


def test_a_good_token_proves_its_account(
    api: KubernetesApi, client: KubernetesClient
) -> None:
    """The review asks for our audience and for nothing else."""
    assert review(client, api.token("emojivoto", "web")) == WEB
    spec = api.calls[-1].body["spec"]
    assert spec["audiences"] == [AUDIENCE]
    assert api.calls[-1].path == TOKEN_REVIEWS


def test_a_token_for_the_api_server_is_reviewed_once_more(
    api: KubernetesApi, client: KubernetesClient
) -> None:
    """Clusters that project no tokens have only those for the API server itself."""
    token = api.token("emojivoto", "web", audiences=[api.signer.issuer])
    assert review(client, token) == WEB
    assert [call.body["spec"].get("audiences") for call in api.calls] == [
        [AUDIENCE],
        None,
    ]


HOUR = dt.timedelta(hours=1)
STRANGER = tokens.Account("a", "b")


@pytest.mark.parametrize(
    ("make", "refusal", "message"),
    [
        pytest.param(
            lambda api: api.token("a", "b", lifetime=-HOUR),
            Malformed,
            "[invalid bearer token, service account token has expired]",
            id="expired",
        ),
        pytest.param(
            lambda api: api.token("a", "b", now=dt.datetime.now(tz=dt.UTC) + HOUR),
            Malformed,
            "[invalid bearer token, service account token is not valid yet]",
            id="not valid yet",
        ),
        pytest.param(
            lambda api: api.token("a", "b", audiences=["vault"]),
            Malformed,
            '[invalid bearer token, token audiences ["vault"] is invalid for the '
            'target audiences ["https://kubernetes.default.svc.cluster.local"]]',
            id="for another audience",
        ),
        pytest.param(
            lambda _: Signer().token(STRANGER).encode(),
            NotEntitled,
            "authentication token could not be authenticated",
            id="signed by another cluster",
        ),
        pytest.param(
            lambda _: b"junk",
            NotEntitled,
            "authentication token could not be authenticated",
            id="no token at all",
        ),
        pytest.param(
            lambda api: api.token("a", "b", sub="system:node:one"),
            Malformed,
            "Username must be in form system:TYPE:NS:SA: system:node:one",
            id="of a node",
        ),
        pytest.param(
            lambda _: "tökén".encode(),
            Malformed,
            "the token is not ASCII text",
            id="not ASCII",
        ),
    ],
)
def test_bad_tokens_are_refused(
    api: KubernetesApi,
    client: KubernetesClient,
    make: Callable[[KubernetesApi], bytes],
    refusal: type[Refusal],
    message: str,
) -> None:
    """What the API server says against a token reaches the workload."""
    with pytest.raises(refusal) as found:
        review(client, make(api))
    assert str(found.value) == message


def answering(status: dict[str, Any]) -> Answer:
    """A review with a status made up."""
    return Answer(201, {"kind": "TokenReview", "status": status})


USER = {"username": "system:serviceaccount:emojivoto:web"}


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param(
            {"authenticated": True, "user": USER},
            f"the token is not for the audience {AUDIENCE}",
            id="a server that knows no audiences",
        ),
        pytest.param(
            {"authenticated": True, "user": USER, "audiences": ["api"]},
            f"the token is not for the audience {AUDIENCE}",
            id="another audience",
        ),
        pytest.param(
            {"authenticated": "yes", "user": USER, "audiences": [AUDIENCE]},
            "authentication token could not be authenticated",
            id="true by another name",
        ),
        pytest.param(
            {"user": USER, "audiences": [AUDIENCE]},
            "authentication token could not be authenticated",
            id="no word of authentication",
        ),
    ],
)
def test_only_a_clear_yes_is_a_yes(
    api: KubernetesApi, client: KubernetesClient, status: dict[str, Any], message: str
) -> None:
    """The audience has to be confirmed, and the authentication be true itself."""
    api.fault = answering(status)
    with pytest.raises(NotEntitled) as found:
        review(client, b"token")
    assert str(found.value) == message


def test_an_error_that_quotes_the_token_is_cleaned(
    api: KubernetesApi, client: KubernetesClient
) -> None:
    """Even if the API server repeats the token, we don't."""
    api.fault = answering({"error": "bad token s3cret, sorry"})
    with pytest.raises(Malformed) as found:
        review(client, b"s3cret")
    assert str(found.value) == "bad token <token>, sorry"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        pytest.param(
            Answer(429, {"message": "too many"}, {"Retry-After": "1"}),
            "429 Too Many Requests: too many",
            id="too many requests",
        ),
        pytest.param(Answer(500, "oops"), "500 Internal Server Error", id="an error"),
        pytest.param(
            Answer(200, "<html>login</html>"),
            "200 OK, but text/html instead of a JSON object",
            id="a login page",
        ),
        pytest.param(
            Answer(302, {}, {"Location": "https://elsewhere.example/"}),
            "302 Found",
            id="a way elsewhere",
        ),
        pytest.param(
            Answer(201, {"status": "fine"}),
            "expected an object as 'status'",
            id="a status that is text",
        ),
    ],
)
def test_answers_that_are_no_review_are_errors_of_the_api(
    api: KubernetesApi, client: KubernetesClient, fault: Answer, message: str
) -> None:
    """Nobody is refused, and nobody let in, because the API server is not well."""
    api.fault = fault
    with pytest.raises(ApiError) as found:
        review(client, api.token("emojivoto", "web"))
    assert message in str(found.value)
    api.fault = None
    assert review(client, api.token("emojivoto", "web")) == WEB


def test_an_api_that_is_gone_is_an_error_and_comes_back(
    api: KubernetesApi, client: KubernetesClient
) -> None:
    """Connections that were cut are made again when the server is there again."""
    token = api.token("emojivoto", "web")
    assert review(client, token) == WEB
    api.down()
    with pytest.raises(ApiError):
        review(client, token)
    api.up()
    assert review(client, token) == WEB


def test_a_slow_api_is_given_up(api: KubernetesApi, tmp_path: Path) -> None:
    """A call ends at its time limit, whatever the server does."""
    api.write_mount(tmp_path)
    found = access.in_cluster(api.environment(), tmp_path)
    client = KubernetesClient(found, Quiet(), read_timeout_s=0.1)
    api.delay_s = 0.5
    with pytest.raises(ApiError, match="timed out"):
        review(client, api.token("emojivoto", "web"))


def test_the_environment_sends_no_token_elsewhere(
    api: KubernetesApi,
    client: KubernetesClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No proxy, no netrc and no other bundle of authorities is looked at."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "netrc"))
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    check_access(client)
    assert len(api.calls) == 1


def test_another_server_is_not_trusted(api: KubernetesApi, tmp_path: Path) -> None:
    """A server whose certificate the mounted CA did not sign learns no token."""
    api.write_mount(tmp_path)
    (tmp_path / "ca.crt").unlink()
    (tmp_path / "ca.crt").write_bytes(CA("stranger").pem)
    found = access.in_cluster(api.environment(), tmp_path)
    with pytest.raises(ApiError, match="certificate verify failed"):
        check_access(KubernetesClient(found, Quiet()))
    assert api.calls == []


def test_our_own_token_and_ca_are_read_again(
    api: KubernetesApi, tmp_path: Path
) -> None:
    """The kubelet renews both while we run; the old token stops to be good."""
    client = in_pod(api, tmp_path, Quiet())
    check_access(client)
    api.expire_client_tokens()
    with pytest.raises(ApiError, match="401 Unauthorized"):
        check_access(client)
    api.down()
    api.ca = CA("a new one")
    api.up()
    api.write_mount(tmp_path / "mount")
    check_access(client)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"two words", id="a space"),
        pytest.param(b"a\nX-Evil: 1", id="a line break"),
        pytest.param("tökén".encode(), id="not ASCII"),
    ],
)
def test_a_token_file_of_ours_without_a_token_is_not_quoted(
    api: KubernetesApi, tmp_path: Path, content: bytes
) -> None:
    """What is in the file is not sent, and not shown in the error either."""
    client = in_pod(api, tmp_path, Quiet())
    path = tmp_path / "mount" / "token"
    path.unlink()
    path.write_bytes(content)
    with pytest.raises(ApiError) as found:
        check_access(client)
    assert "does not hold a token" in str(found.value)
    assert content.decode() not in str(found.value)


def test_whether_we_may_review_is_asked_first(
    api: KubernetesApi, client: KubernetesClient
) -> None:
    """The access review names what we want to do; a no is told with its reason."""
    check_access(client)
    assert api.calls[-1].path == ACCESS_REVIEWS
    assert api.calls[-1].body["spec"]["resourceAttributes"] == {
        "verb": "create",
        "group": "authentication.k8s.io",
        "version": "v1",
        "resource": "tokenreviews",
    }
    api.denied = "no RBAC policy matched"
    with pytest.raises(AccessDenied) as found:
        check_access(client)
    assert str(found.value) == (
        "Unable to create kubernetes token reviews: no RBAC policy matched"
    )


def test_calls_are_observed(api: KubernetesApi, tmp_path: Path) -> None:
    """Metrics get each call's status, or that there was none."""
    observer = Quiet()
    client = in_pod(api, tmp_path, observer)
    check_access(client)
    api.down()
    with pytest.raises(ApiError):
        check_access(client)
    assert observer.codes == ["201", "<error>"]


def test_outside_of_a_pod_one_is_told_what_to_do() -> None:
    """Without the variables that pods have, the option is named."""
    with pytest.raises(IssuerError, match="--kubeconfig"):
        access.in_cluster({})


def test_ipv6_addresses_are_bracketed() -> None:
    """A cluster of IPv6 has a URL that can be used."""
    variables = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert access.in_cluster(variables).server == "https://[fd00::1]:443"


def test_a_kubeconfig_with_files_is_used(api: KubernetesApi, tmp_path: Path) -> None:
    """Files are looked for beside the kubeconfig that names them."""
    found = access.from_kubeconfig(api.write_kubeconfig(tmp_path))
    check_access(KubernetesClient(found, Quiet()))


def test_a_kubeconfig_with_values_is_used(api: KubernetesApi, tmp_path: Path) -> None:
    """The CA and the token may be in the file itself."""
    path = api.write_kubeconfig(tmp_path)
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"] = {
        "server": api.url,
        "certificate-authority-data": base64.b64encode(api.ca.pem).decode(),
    }
    config["users"][0]["user"] = {"token": api.client_token().decode()}
    path.write_text(json.dumps(config))
    found = access.from_kubeconfig(path)
    check_access(KubernetesClient(found, Quiet()))
    assert "eyJ" not in repr(found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda c: c.pop("contexts"), "'contexts'", id="no contexts"),
        pytest.param(
            lambda c: c.update({"current-context": "gone"}),
            "'context gone'",
            id="a context that is not there",
        ),
        pytest.param(
            lambda c: c["clusters"][0]["cluster"].pop("certificate-authority"),
            "'certificate-authority'",
            id="no CA",
        ),
        pytest.param(
            lambda c: c["clusters"][0]["cluster"].update(
                {"insecure-skip-tls-verify": True}
            ),
            "insecure-skip-tls-verify is not supported",
            id="trusting anybody",
        ),
        pytest.param(
            lambda c: c["users"][0].update({"user": {"exec": {"command": "aws"}}}),
            "'exec', which is not supported",
            id="a program that makes tokens",
        ),
    ],
)
def test_a_kubeconfig_that_can_not_be_used_is_told(
    api: KubernetesApi,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], object],
    message: str,
) -> None:
    """What is missing, or is not supported, is named."""
    path = api.write_kubeconfig(tmp_path)
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    with pytest.raises(IssuerError) as found:
        access.from_kubeconfig(path)
    assert message in str(found.value)


def test_a_kubeconfig_that_is_no_yaml_is_not_quoted(tmp_path: Path) -> None:
    """A broken file may hold a token: no line of it is shown."""
    path = tmp_path / "kubeconfig"
    path.write_text("users: [{token: s3cret\n")
    with pytest.raises(IssuerError) as found:
        access.from_kubeconfig(path)
    assert "s3cret" not in str(found.value)
    assert found.value.__cause__ is None


def test_the_pace_is_so_many_a_second() -> None:
    """Instants are a hundredth of a second apart, and unused ones are not saved up."""
    pace = Pace(100)
    assert [round(pace.reserve(0), 6) for _ in range(4)] == [0, 0.01, 0.02, 0.03]
    assert [round(pace.reserve(10), 6) for _ in range(2)] == [0, 0.01]


def test_a_burst_may_follow_a_pause() -> None:
    """With a burst of three, three calls need not wait, and the fourth does."""
    pace = Pace(10, burst=3)
    assert [round(pace.reserve(5), 6) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]


def test_no_second_has_more_calls_than_the_limit(
    api: KubernetesApi, client: KubernetesClient
) -> None:
    """A crowd is let through at the pace, in any window of the time they arrived in."""
    token = api.token("emojivoto", "web")

    async def crowd() -> None:
        with ThreadPoolExecutor(32) as threads:
            reviewer = TokenReviewer(client, Gate(Pace(100)), threads)
            await asyncio.gather(*(reviewer.validate(token) for _ in range(130)))

    asyncio.run(crowd())
    times = api.times(TOKEN_REVIEWS)
    assert len(times) == 130
    fullest = max(sum(at <= other < at + 1 for other in times) for at in times)
    assert fullest <= 104  # arrivals jitter by a few hundredths of a second


def test_too_many_are_refused_at_once() -> None:
    """Beyond the queue nobody waits; those in it are served or refused in time."""

    async def crowd() -> list[str]:
        gate = Gate(Pace(1000), at_once=1, queue=2, wait_s=0.05)
        release = asyncio.Event()

        async def one() -> str:
            try:
                async with gate.enter():
                    await release.wait()
            except Overloaded as error:
                return str(error)
            return "served"

        holder = asyncio.create_task(one())
        await asyncio.sleep(0)
        outcomes = await asyncio.gather(*(one() for _ in range(5)))
        release.set()
        return [*outcomes, await holder, await one()]

    outcomes = asyncio.run(crowd())
    waited = "a token waited 0.05 s for its review: try again later"
    full = "too many tokens wait for their review: try again later"
    assert outcomes == [waited, waited, full, full, full, "served", "served"]


def test_those_who_leave_the_queue_leave_no_trace() -> None:
    """A caller that gives up, at any point, takes nobody's place."""

    async def crowd() -> int:
        gate = Gate(Pace(20), at_once=2, queue=100, wait_s=5)
        tasks = []

        async def one() -> None:
            async with gate.enter():
                await asyncio.sleep(0.001)

        for _ in range(20):
            tasks.append(asyncio.create_task(one()))
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        gone = await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(5):
            await one()
            await asyncio.gather(one(), one())
        return sum(isinstance(error, asyncio.CancelledError) for error in gone)

    assert asyncio.run(crowd()) >= 19


def event(number: int) -> events.Event:
    """An event that can be told from others."""
    account = Account("serviceaccount", "emojivoto", f"web-{number}")
    return events.issued(account, f"message {number}")


def test_events_that_can_not_be_sent_are_counted(
    api: KubernetesApi, client: KubernetesClient
) -> None:
    """Failures and a full queue cost events, never a certificate."""
    outcomes: list[str] = []
    done = asyncio.Event()

    def counted(outcome: str) -> None:
        outcomes.append(outcome)
        if outcomes.count("failed") == 3:
            done.set()

    async def run() -> None:
        with ThreadPoolExecutor(1) as threads:
            sender = EventSender(client, Gate(Pace(1000)), threads, counted)
            for number in range(1003):
                sender.send(event(number))
            task = asyncio.create_task(sender.run())
            await done.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    api.fault = Answer(500, {"message": "no"})
    asyncio.run(run())
    assert outcomes[:3] == ["dropped"] * 3
    assert set(outcomes[3:]) == {"failed"}


def test_events_give_way_to_reviews(
    api: KubernetesApi, client: KubernetesClient
) -> None:
    """While tokens wait for their turn, no event takes one."""

    async def run() -> None:
        with ThreadPoolExecutor(8) as threads:
            gate = Gate(Pace(50), at_once=1)
            sender = EventSender(client, gate, threads, lambda _: None)
            reviewer = TokenReviewer(client, gate, threads)
            token = api.token("emojivoto", "web")
            task = asyncio.create_task(sender.run())
            waiting = [asyncio.create_task(reviewer.validate(token)) for _ in range(5)]
            await asyncio.sleep(0)
            sender.send(event(1))
            await asyncio.sleep(0)
            late = [asyncio.create_task(reviewer.validate(token)) for _ in range(5)]
            await asyncio.gather(*waiting, *late)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, api.wait, lambda seen: bool(seen.events))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert api.calls[-1].path == "/api/v1/namespaces/emojivoto/events"


def test_nothing_secret_is_logged_by_the_libraries_beneath(
    api: KubernetesApi, client: KubernetesClient, caplog: pytest.LogCaptureFixture
) -> None:
    """requests and urllib3 log each call; neither our token nor the reviewed one."""
    caplog.set_level(logging.DEBUG)
    token = api.token("emojivoto", "web")
    review(client, token)
    assert "tokenreviews" in caplog.text
    assert token.decode().rsplit(".", 1)[1] not in caplog.text
