"""Names of identities: which texts may be one, in three places with three rules.

A *local name* goes into the CSR and is what Kubernetes calls a fully qualified
domain name: lower case, at least two labels. A *DNS name* is what the proxy takes
for one in its configuration: underscores and capitals allowed, folded to lower
case. A *server id* is what a server's certificate must hold: a DNS name or a URI.
"""

from __future__ import annotations

from identity.errors import BadName

MAX_NAME = 253
"""RFC 1035's 255 octets on the wire, as text without the final dot."""
MAX_LABEL = 63

_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_ANY = _LOWER | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_SCHEME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789+-.")
_URI = frozenset(chr(code) for code in range(0x21, 0x7F)) - frozenset('"<>\\^`{|}')


def local_name(text: str) -> str:
    """The text itself, if it may be the name in a CSR.

    A final dot is allowed and kept. Raises `BadName` with upstream's messages.
    """
    if not text:
        raise BadName("a non-empty identity is required")
    name = text.removesuffix(".")
    labels = name.split(".")
    if (
        len(name) > MAX_NAME
        or len(labels) < 2
        or not all(_is_label(label, _LOWER) for label in labels)
    ):
        raise BadName(f"{text} a fully qualified DNS name is required")
    return text


def dns_name(text: str) -> str:
    """The name in lower case, as the proxy reads it; a final dot is kept.

    Raises `BadName`.
    """
    name = text.removesuffix(".")
    labels = name.split(".")
    if len(name) > MAX_NAME:
        raise BadName(f"expected a DNS name of at most {MAX_NAME} characters")
    if not all(_is_label(label, _ANY) for label in labels) or _is_number(labels[-1]):
        raise BadName(f"expected a DNS name such as web.default.example, got {text!r}")
    return text.lower()


def tls_id(text: str) -> str:
    """A DNS name without a final dot, or a URI: what a certificate's SAN can hold.

    Raises `BadName`.
    """
    if is_uri(text):
        return text
    if text.endswith("."):
        raise BadName(f"expected a name without a final dot, got {text!r}")
    return dns_name(text)


def is_uri(text: str) -> bool:
    """Whether the text is an absolute URI such as ``spiffe://example/ns/a/sa/b``."""
    scheme, colon, rest = text.partition("://")
    return (
        bool(colon and scheme and rest)
        and scheme[0].isalpha()
        and _SCHEME.issuperset(scheme.lower())
        and _URI.issuperset(rest)
    )


def _is_label(label: str, letters: frozenset[str]) -> bool:
    return (
        0 < len(label) <= MAX_LABEL
        and letters.issuperset(label.replace("-", ""))
        and label[0] != "-"
        and label[-1] != "-"
    )


def _is_number(label: str) -> bool:
    return label.isascii() and label.isdigit()
