"""Names of identities: which texts pass, and the messages for those that don't."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity.errors import BadName
from identity.names import dns_name, is_uri, local_name, tls_id

LONG = "a" * 63 + "." + "b" * 63 + "." + "c" * 63 + "." + "d" * 61


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("web.emojivoto", id="two labels"),
        pytest.param("web.ns.serviceaccount.identity.linkerd.cluster.local", id="ours"),
        pytest.param("0.1", id="digits"),
        pytest.param("a-b.c--d", id="dashes inside"),
        pytest.param("a.b.", id="a final dot is kept"),
        pytest.param(LONG, id="253 characters"),
        pytest.param(f"{'a' * 63}.b", id="a label of 63"),
    ],
)
def test_local_names_as_kubernetes_takes_them(text: str) -> None:
    """A fully qualified lower-case name is returned as it is."""
    assert local_name(text) == text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("web", id="one label"),
        pytest.param("Web.ns", id="capital"),
        pytest.param("w_b.ns", id="underscore"),
        pytest.param("*.ns", id="wildcard"),
        pytest.param("-a.b", id="dash first"),
        pytest.param("a-.b", id="dash last"),
        pytest.param("a..b", id="empty label"),
        pytest.param(".a.b", id="leading dot"),
        pytest.param("a.b..", id="two final dots"),
        pytest.param(f"{'a' * 64}.b", id="a label of 64"),
        pytest.param(LONG + "d", id="254 characters"),
        pytest.param("a.b\n", id="newline"),
        pytest.param("ä.b", id="not ASCII"),
        pytest.param("٣.b", id="a digit that is not ASCII"),
        pytest.param("spiffe://a/b", id="URI"),
    ],
)
def test_local_names_refused(text: str) -> None:
    """Anything else is refused in upstream's words."""
    with pytest.raises(BadName) as caught:
        local_name(text)
    assert str(caught.value) == f"{text} a fully qualified DNS name is required"


def test_empty_local_name() -> None:
    """No name at all has a message of its own."""
    with pytest.raises(BadName, match=r"^a non-empty identity is required$"):
        local_name("")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param("Web.Example", "web.example", id="folded to lower case"),
        pytest.param("localhost.", "localhost.", id="final dot kept"),
        pytest.param("_grpc._tcp.a", "_grpc._tcp.a", id="underscores"),
        pytest.param("1.2.3.a", "1.2.3.a", id="numbers before a word"),
    ],
)
def test_dns_names_as_the_proxy_takes_them(text: str, name: str) -> None:
    """Configuration is looser than a CSR."""
    assert dns_name(text) == name


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(".", id="root"),
        pytest.param("10.0.0.1", id="an address"),
        pytest.param("a b", id="blank"),
        pytest.param("a.-b", id="dash first"),
        pytest.param("a" * 64, id="label too long"),
        pytest.param(LONG + "d", id="name too long"),
    ],
)
def test_dns_names_refused(text: str) -> None:
    """What no proxy takes for a name is refused."""
    with pytest.raises(BadName):
        dns_name(text)


def test_server_ids() -> None:
    """A server is known by a DNS name without final dot, or by a URI."""
    assert tls_id("Linkerd-Identity.x") == "linkerd-identity.x"
    assert tls_id("spiffe://td/ns/a/sa/b") == "spiffe://td/ns/a/sa/b"
    with pytest.raises(BadName, match="without a final dot"):
        tls_id("a.b.")


@pytest.mark.parametrize("text", ["://a", "spiffe://", "1a://b", "a://b c", "a:b", "a"])
def test_no_uris(text: str) -> None:
    """A URI has a scheme, an authority or path, and no blanks."""
    assert not is_uri(text)


@given(st.text(max_size=80))
def test_no_text_makes_the_rules_fail(text: str) -> None:
    """Every text is a name or refused; what passes as local passes as DNS name too,
    but for names whose last label is a number."""
    try:
        name = local_name(text)
    except BadName:
        return
    if not name.rstrip(".").rpartition(".")[2].isdigit():
        assert dns_name(name) == name
