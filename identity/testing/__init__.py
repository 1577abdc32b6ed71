"""Stand-ins to test against, made for everybody: they behave, and misbehave.

`CA` certifies anything, also what has expired or names somebody else. `Signer`
makes service-account tokens with a real key; `KubernetesApi` serves HTTPS, reviews
such tokens by verifying them, and can be slow, broken or gone. `project` fills a
folder as the kubelet fills a mounted Secret. `identity.testing.service` runs the
real certifying service with all of these.
"""

from identity.testing.authority import CA, Leaf, csr_der, new_key, whole_second
from identity.testing.https import Answer, Call
from identity.testing.kubernetes import KubernetesApi
from identity.testing.projected import project
from identity.testing.tokens import AUDIENCE, Account, Signer, review

__all__ = [
    "AUDIENCE",
    "CA",
    "Account",
    "Answer",
    "Call",
    "KubernetesApi",
    "Leaf",
    "Signer",
    "csr_der",
    "new_key",
    "project",
    "review",
    "whole_second",
]
