"""Everything that can go wrong with an identity, as one tree.

::

    IdentityError                  a failure to be told in one message: exit code 1
    |-- Misconfigured              inputs are wrong; all mistakes at once: exit code 2
    |-- BadName                    not a name that an identity can have
    |-- BadTrustAnchors            no usable certificates to trust
    |-- BadKeyPair                 key.p8 and csr.der can't be used, or not together
    |-- DirectoryUnusable          the identity directory can't be read or written
    |-- TokenUnusable              the token can't be read, or is empty
    |-- AttemptFailed              one certification failed on the way
    |   |-- ServiceUnresolved      no address of the service is known
    |   |-- ServiceUnreachable     no address could be connected to
    |   |-- ServiceUntrusted       the peer is not the identity service we expect
    |   |-- ClientRefused          the service does not take our certificate
    |   `-- CallFailed             the service answered with a status, or not in time
    `-- CertificateRejected        the answer is not a certificate for us

The certifying service adds its own branches in `identity.issuer`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class IdentityError(Exception):
    """A failure with one message for people: what was expected, what to do."""


class Misconfigured(IdentityError):
    """Environment variables or options are wrong; `problems` names each of them."""

    def __init__(self, problems: Sequence[str]) -> None:
        count = "1 mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        lines = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"{count} in the configuration:{lines}")
        self.problems = tuple(problems)


class BadName(IdentityError):
    """A text is not a DNS name of the kind that is needed."""


class BadTrustAnchors(IdentityError):
    """The trust anchors hold no certificate, or something that is none."""


class BadKeyPair(IdentityError):
    """The private key and the signing request are broken, or of two different keys."""


class DirectoryUnusable(IdentityError):
    """The identity directory is missing, not writable, full, or holds foreign files."""


class TokenUnusable(IdentityError):
    """The token file can't be read, or holds nothing."""


class AttemptFailed(IdentityError):
    """A certification did not get an answer that could be judged."""


class ServiceUnresolved(AttemptFailed):
    """The name of the identity service has no address."""


class ServiceUnreachable(AttemptFailed):
    """No address of the identity service took the connection in time."""


class ServiceUntrusted(AttemptFailed):
    """The peer's certificate does not make it the identity service."""


class ClientRefused(AttemptFailed):
    """The service ended the TLS connection because of our own certificate."""


class CallFailed(AttemptFailed):
    """The call ended with a gRPC status; `code` is its name, such as UNAVAILABLE."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class CertificateRejected(IdentityError):
    """The service's answer is not a certificate that this workload can use."""
