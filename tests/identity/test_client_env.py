"""Configuration from variables and options: names, defaults, all mistakes at once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from identity import config, env, variables
from identity.config import Service
from identity.errors import Misconfigured
from identity.schedule import Backoff, RefreshPolicy
from identity.testing import CA
from identity.variables import LOCAL_NAME

NAME = "web.emojivoto.serviceaccount.identity.linkerd.cluster.local"
SERVER = "linkerd-identity.linkerd.serviceaccount.identity.linkerd.cluster.local"
P = "LINKERD2_PROXY_"


@pytest.fixture(scope="session")
def good() -> dict[str, str]:
    """What Linkerd's charts set."""
    return {
        f"{P}IDENTITY_DIR": "/var/run/linkerd/identity/end-entity",
        f"{P}IDENTITY_TRUST_ANCHORS": CA().pem.decode(),
        f"{P}IDENTITY_LOCAL_NAME": NAME,
        f"{P}IDENTITY_TOKEN_FILE": "/var/run/secrets/tokens/linkerd-identity-token",
        f"{P}IDENTITY_SVC_ADDR": (
            "linkerd-identity-headless.linkerd.svc.cluster.local.:8080"
        ),
        f"{P}IDENTITY_SVC_NAME": SERVER,
        f"{P}OUTBOUND_CONNECT_TIMEOUT": "1000ms",
        f"{P}INBOUND_CONNECT_TIMEOUT": "100ms",
    }


def mistakes(values: dict[str, str], given: dict[str, str] | None = None) -> list[str]:
    """What is said to be wrong, without the common prefix."""
    with pytest.raises(Misconfigured) as caught:
        env.read(values, given)
    return [text.removeprefix(P) for text in caught.value.problems]


def test_the_charts_environment(good: dict[str, str]) -> None:
    """Every value ends where it belongs, with upstream's defaults for the rest."""
    read = env.read(good)
    assert read.directory == "/var/run/linkerd/identity/end-entity"
    assert read.name == NAME
    assert read.token_file.endswith("/linkerd-identity-token")
    assert read.service == Service(
        host="linkerd-identity-headless.linkerd.svc.cluster.local.",
        port=8080,
        name=SERVER,
    )
    assert read.refresh == RefreshPolicy()
    assert read.backoff == Backoff()
    assert read.connect_timeout == timedelta(seconds=1)
    assert read.anchors.text == good[f"{P}IDENTITY_TRUST_ANCHORS"]


def test_all_mistakes_at_once() -> None:
    """An empty environment lists all that is required."""
    assert mistakes({}) == [
        "IDENTITY_SVC_ADDR is missing: set it, or give --svc-addr",
        "IDENTITY_SVC_NAME is missing: set it, or give --svc-name",
        "IDENTITY_TRUST_ANCHORS is missing: set it, or give --trust-anchors",
        "IDENTITY_DIR is missing: set it, or give --dir",
        "IDENTITY_TOKEN_FILE is missing: set it, or give --token-file",
        "IDENTITY_LOCAL_NAME is missing: set it, or give --name",
    ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param(
            {"IDENTITY_DISABLED": "1"},
            "IDENTITY_DISABLED is no longer supported: unset it",
            id="disabled",
        ),
        pytest.param(
            {"IDENTITY_SPIRE_SOCKET": ""},
            "IDENTITY_SPIRE_SOCKET asks for SPIRE, which is not supported here: "
            "unset it",
            id="SPIRE, even empty",
        ),
        pytest.param(
            {"IDENTITY_MIN_REFRESH": "10"},
            "IDENTITY_MIN_REFRESH '10': expected digits and one of ms, s, m, h, d, "
            "such as 10s",
            id="duration without unit",
        ),
        pytest.param(
            {"IDENTITY_MIN_REFRESH": "1h", "IDENTITY_MAX_REFRESH": "1m"},
            f"IDENTITY_MIN_REFRESH is 1h, more than {P}IDENTITY_MAX_REFRESH, which "
            "is 1m",
            id="bounds the wrong way round",
        ),
        pytest.param(
            {"OUTBOUND_CONNECT_TIMEOUT": "0"},
            "OUTBOUND_CONNECT_TIMEOUT '0': expected more than 0",
            id="no time to connect",
        ),
        pytest.param(
            {"IDENTITY_SVC_ADDR": "identity"},
            "IDENTITY_SVC_ADDR 'identity': expected an address and a port, such as "
            "10.0.0.1:8080",
            id="no port",
        ),
        pytest.param(
            {"IDENTITY_SVC_ADDR": "identity:0"},
            "IDENTITY_SVC_ADDR 'identity:0': expected a port from 1 to 65535",
            id="port 0",
        ),
        pytest.param(
            {"IDENTITY_SVC_ADDR": "2001:db8::1:80"},
            "IDENTITY_SVC_ADDR '2001:db8::1:80': expected brackets around the "
            "address, as in [::1]:8080",
            id="IPv6 without brackets",
        ),
        pytest.param(
            {"IDENTITY_SVC_ADDR": "10.0.0.256:80"},
            "IDENTITY_SVC_ADDR '10.0.0.256:80': expected a DNS name such as "
            "web.default.example, got '10.0.0.256'",
            id="neither address nor name",
        ),
        pytest.param(
            {"IDENTITY_SVC_NAME": "a.b."},
            "IDENTITY_SVC_NAME 'a.b.': expected a name without a final dot, got 'a.b.'",
            id="service with final dot",
        ),
        pytest.param(
            {"IDENTITY_LOCAL_NAME": ""},
            "IDENTITY_LOCAL_NAME is missing: set it, or give --name",
            id="empty name",
        ),
        pytest.param(
            {"IDENTITY_LOCAL_NAME": "web"},
            "IDENTITY_LOCAL_NAME 'web': web a fully qualified DNS name is required",
            id="bad name",
        ),
        pytest.param(
            {"IDENTITY_DIR": "\udcff"},
            "IDENTITY_DIR: expected UTF-8",
            id="not UTF-8",
        ),
        pytest.param(
            {"IDENTITY_TRUST_ANCHORS": "secret junk"},
            "IDENTITY_TRUST_ANCHORS: not a PEM certificate: there is no BEGIN line",
            id="anchors, not shown",
        ),
        pytest.param(
            {"OUTBOUND_CONNECT_EXP_BACKOFF_MIN": "1s"},
            f"OUTBOUND_CONNECT_EXP_BACKOFF_MIN and {P}OUTBOUND_CONNECT_EXP_BACKOFF_MAX "
            "must both be set, or neither",
            id="half a backoff",
        ),
        pytest.param(
            {
                "OUTBOUND_CONNECT_EXP_BACKOFF_MIN": "2s",
                "OUTBOUND_CONNECT_EXP_BACKOFF_MAX": "1s",
            },
            f"OUTBOUND_CONNECT_EXP_BACKOFF_MIN must not be more than "
            f"{P}OUTBOUND_CONNECT_EXP_BACKOFF_MAX, nor "
            f"{P}OUTBOUND_CONNECT_EXP_BACKOFF_MAX 0",
            id="backoff the wrong way round",
        ),
    ],
)
def test_mistakes_and_their_words(
    good: dict[str, str], changed: dict[str, str], said: str
) -> None:
    """One mistake is one line: the setting, what it is, what is expected."""
    values = good | {P + name: text for name, text in changed.items()}
    assert mistakes(values) == [said]


def test_options_are_called_by_their_names(good: dict[str, str]) -> None:
    """A mistake in an option is told as the option's."""
    values = good | {variables.MIN_REFRESH: "x"}
    said = mistakes(values, {variables.MIN_REFRESH: "--min-refresh"})
    assert said == [
        "--min-refresh 'x': expected digits and one of ms, s, m, h, d, such as 10s"
    ]


def test_every_setting_has_both_spellings() -> None:
    """Options and variables are in one table, each once."""
    assert len({s.option for s in config.SETTINGS}) == len(config.SETTINGS)
    assert len({s.variable for s in config.SETTINGS}) == len(config.SETTINGS)


@pytest.mark.parametrize(
    ("address", "service", "authority"),
    [
        pytest.param(
            "10.0.0.1:8080",
            Service(host="10.0.0.1", port=8080, name=SERVER),
            "10.0.0.1:8080",
            id="IPv4",
        ),
        pytest.param(
            "[2001:DB8::1]:80",
            Service(host="2001:db8::1", port=80, name=SERVER),
            "[2001:db8::1]",
            id="IPv6, port 80",
        ),
        pytest.param(
            "Identity.Example.:80",
            Service(host="identity.example.", port=80, name=SERVER),
            "identity.example",
            id="name, port 80",
        ),
        pytest.param(
            "localhost:8080",
            Service(host="localhost", port=8080, name=SERVER),
            "localhost:8080",
            id="localhost without dot is a name",
        ),
        pytest.param(
            "LOCALHOST.:8080",
            Service(host="localhost.", port=8080),
            "localhost:8080",
            id="localhost with dot is plaintext",
        ),
        pytest.param(
            "127.8.8.8:1",
            Service(host="127.8.8.8", port=1),
            "127.8.8.8:1",
            id="loopback of IPv4",
        ),
        pytest.param(
            "[::1]:1", Service(host="::1", port=1), "[::1]:1", id="loopback of IPv6"
        ),
    ],
)
def test_addresses(
    good: dict[str, str], address: str, service: Service, authority: str
) -> None:
    """Where the service is, whether TLS is spoken, and what HTTP/2 calls it."""
    read = env.read(good | {variables.SVC_ADDR: address})
    assert read.service == service
    assert read.service.authority == authority
    expected = timedelta(milliseconds=1000 if service.name else 100)
    assert read.connect_timeout == expected


def test_loopback_needs_no_service_name(good: dict[str, str]) -> None:
    """Inside the identity pod there is nobody to be told apart."""
    values = good | {variables.SVC_ADDR: "localhost.:8080"}
    del values[variables.SVC_NAME]
    assert env.read(values).service.name is None


def test_a_service_known_by_uri(good: dict[str, str]) -> None:
    """A SPIFFE id may stand where a DNS name does."""
    values = good | {variables.SVC_NAME: "spiffe://td/ns/linkerd/sa/identity"}
    assert env.read(values).service.name == "spiffe://td/ns/linkerd/sa/identity"


def test_id_and_name_instead_of_the_local_name(good: dict[str, str]) -> None:
    """Without LOCAL_NAME the other two count, and have to be the same."""
    values = {k: v for k, v in good.items() if k != LOCAL_NAME}
    both = {variables.SERVER_ID: NAME, variables.SERVER_NAME: NAME.upper()}
    assert env.read(values | both).name == NAME
    other = both | {variables.SERVER_NAME: "a.b"}
    assert env.read(good | other).name == NAME, "LOCAL_NAME wins"
    said = "linkerd identity requires a TLS Id and server name to be the same: "
    said += f"{variables.SERVER_ID} is {NAME!r}, {variables.SERVER_NAME} is 'a.b'"
    assert mistakes(values | other) == [said]
    assert mistakes(values | {variables.SERVER_ID: NAME}) == [
        "IDENTITY_SERVER_NAME is missing"
    ]


def test_backoff_of_the_proxy_is_taken(good: dict[str, str]) -> None:
    """If the proxy's backoff is set, it is ours; jitter is none unless given."""
    prefix = f"{P}OUTBOUND_CONNECT_EXP_BACKOFF"
    values = good | {f"{prefix}_MIN": "100ms", f"{prefix}_MAX": "10s"}
    backoff = Backoff(
        shortest=timedelta(milliseconds=100), longest=timedelta(seconds=10), spread=0
    )
    assert env.read(values).backoff == backoff
    assert env.read(values | {f"{prefix}_JITTER": "0.5"}).backoff.spread == 0.5
    assert mistakes(values | {f"{prefix}_JITTER": "nan"}) == [
        "OUTBOUND_CONNECT_EXP_BACKOFF_JITTER 'nan': expected a number from 0 to 100"
    ]


def test_refresh_bounds(good: dict[str, str]) -> None:
    """Both bounds can be set; zero is a bound too."""
    values = good | {variables.MIN_REFRESH: "0", variables.MAX_REFRESH: "2h"}
    assert env.read(values).refresh == RefreshPolicy(
        shortest=timedelta(), longest=timedelta(hours=2)
    )
