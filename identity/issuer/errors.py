"""What can go wrong with the service, and why it refuses requests.

::

    IdentityError
    |-- IssuerError              the service can't start or go on: exit code 1
    |   |-- CredentialsError     certificate, key or trust anchors can't be used
    |   |-- ApiError             the Kubernetes API could not be asked
    |   `-- AccessDenied         the Kubernetes API does not let us review tokens
    `-- Refusal                  one request is refused; the service goes on
        |-- NotReady             there is no issuer yet
        |-- Malformed            a part of the request is missing or no such thing
        |-- NotEntitled          the parts are sound, but don't belong together
        |-- IssuerInvalid        our own certificate is not good at this time
        |-- ReviewFailed         the token could not be judged
        |-- SigningFailed        the key can't be certified
        `-- Overloaded           more requests than can be judged in time
"""

from __future__ import annotations

from identity.errors import IdentityError


class IssuerError(IdentityError):
    """The service can't do its work."""


class CredentialsError(IssuerError):
    """The issuer's files are missing, broken, or don't belong together."""


class ApiError(IssuerError):
    """A call to the Kubernetes API failed; without the answer nothing is known."""


class AccessDenied(IssuerError):
    """The service's account may not create token reviews."""


class Refusal(IdentityError):
    """A request that gets no certificate; the message is sent to the caller."""


class NotReady(Refusal):
    """No issuer has been loaded yet."""


class Malformed(Refusal):
    """Identity, token or CSR is missing, or not what it should be."""


class NotEntitled(Refusal):
    """The CSR is for another name, or the token does not prove the name."""


class IssuerInvalid(Refusal):
    """The issuer does not verify against the trust anchors now."""


class ReviewFailed(Refusal):
    """Whether the token is good could not be found out."""


class SigningFailed(Refusal):
    """The public key is of a kind that is not certified."""


class Overloaded(Refusal):
    """Too many tokens wait for their review: come back later."""
