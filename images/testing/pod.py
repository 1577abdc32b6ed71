"""The containers of a pod in a laboratory, as Linkerd's charts describe them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from images.testing.built import Built
from images.testing.oci import Mount, Security, Spec

PROXY_INIT = "/usr/lib/linkerd/linkerd2-proxy-init"
IDENTITY = "/usr/lib/linkerd/linkerd2-proxy-identity"
"""The paths that charts call."""

ARGUMENTS = (
    *("--incoming-proxy-port", "4143", "--outgoing-proxy-port", "4140"),
    *("--proxy-uid", "2102", "--inbound-ports-to-ignore", "4190,4191,4567,4568"),
    *("--outbound-ports-to-ignore", "4567,4568"),
)
"""What they give to linkerd-init by default."""

IDENTITY_FOLDER = "/var/run/linkerd/identity/end-entity"
STAND_IN = Path(__file__).with_name("stand_in.py")


def linkerd_init(
    built: Built,
    namespace: str,
    mounts: Sequence[Mount],
    *words: str,
    security: Security = Security(),  # noqa: B008  (a value)
) -> Spec:
    """The init container; `words` follow the arguments of the charts."""
    return Spec(
        str(built.init.root),
        [PROXY_INIT, *ARGUMENTS, *words],
        namespace,
        security,
        mounts=mounts,
    )


def stand_in(
    built: Built, namespace: str, user: int, *words: str, identity: str = ""
) -> Spec:
    """A container with a stand-in (see `stand_in`), on Debian's own Python.

    With `identity`, a folder of the node, it speaks mTLS with the files there.
    """
    code = Mount(str(STAND_IN), "/stand_in.py", read_only=True)
    return Spec(
        str(built.base.root),
        ["/usr/bin/python3", "-I", "-u", "/stand_in.py", *words],
        namespace,
        Security(user, user, ()),
        {"IDENTITY": IDENTITY_FOLDER} if identity else {},
        [
            code,
            *([Mount(identity, IDENTITY_FOLDER, read_only=True)] if identity else []),
        ],
    )
