"""What starting from an image costs: against the checkout, and in a pod's container.

Inside and outside run in turn, each time in a fresh namespace, through the same
`chroot`; the runtime's own part is measured by a program that does nothing.
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from interception import DEFAULT_ARGS, PROGRAM, Row, compare, pairs

from images.testing.built import Built, images
from images.testing.oci import Mount, Spec
from images.testing.pod import PROXY_INIT, linkerd_init
from images.testing.runtime import Runtime
from proxyinit.lab import Namespace

MODES = ("legacy", "nft", "nftables")
CONTAINERS = 15

_NOTHING = "int main(void) { return 0; }\n"
"""What is measured with it is the runtime."""


def rows() -> Iterator[Row]:
    """Every figure of the images."""
    with images() as built, Runtime() as runtime:
        with _root(built) as root:
            for mode in MODES:
                yield _against_outside(root, mode)
        for mode in MODES:
            yield _in_a_pod(built, runtime, mode)


@contextmanager
def _root(built: Built) -> Iterator[Path]:
    """The image's files with /proc, and a layer that takes the lock file."""
    with TemporaryDirectory(dir="/var/tmp") as folder, ExitStack() as stack:

        def mount(*words: str) -> None:
            _run("mount", *words)
            stack.callback(_run, "umount", words[-1])

        for part in ("upper", "work", "root"):
            Path(folder, part).mkdir()
        upper = f"upperdir={folder}/upper,workdir={folder}/work"
        layers = f"lowerdir={built.init.root},{upper}"
        root = f"{folder}/root"
        mount("-t", "overlay", "overlay", "-o", layers, root)
        mount("--bind", "/proc", f"{root}/proc")
        yield Path(root)


def _against_outside(root: Path, mode: str) -> Row:
    words = [*DEFAULT_ARGS, "--iptables-mode", mode]
    inside = ["/usr/sbin/chroot", str(root), PROXY_INIT, *words]
    outside = ["/usr/sbin/chroot", "/", PROGRAM, *words]
    found = pairs(inside, outside)
    what = f"default install from the image, {mode}, against the checkout"
    return compare(what, found, 1.1, ("image", "checkout"))


def _in_a_pod(built: Built, runtime: Runtime, mode: str) -> Row:
    """The init container, less a container that does nothing."""
    folder = runtime.volume(0o755)
    source, program = Path(folder, "nothing.c"), Path(folder, "nothing")
    source.write_text(_NOTHING, encoding="ascii")
    _run("gcc", "-static", "-o", str(program), str(source))
    nothing = Mount(folder, "/nothing", read_only=True)
    own, whole = [], []
    for _ in range(CONTAINERS):
        run = Mount(runtime.volume(), "/run")
        with _namespace() as path:
            init = linkerd_init(built, path, [run, nothing], "--iptables-mode", mode)
            own.append(_wall_ms(runtime, replace(init, command=["/nothing/nothing"])))
            whole.append(_wall_ms(runtime, init))
    mine = statistics.median(a - b for a, b in zip(whole, own, strict=True))
    overhead = statistics.median(own)
    what = f"init container in a pod, {mode}, without the runtime's own time"
    return Row(what, f"{mine:.1f} ms (runc alone {overhead:.1f} ms)", "")


def _wall_ms(runtime: Runtime, spec: Spec) -> float:
    done = runtime.run(spec)
    if done.status:
        raise RuntimeError(f"{spec.command[0]} failed: {done.stderr}")
    return done.wall_ms


@contextmanager
def _namespace() -> Iterator[str]:
    made = Namespace("bench")
    try:
        yield made.path
    finally:
        made.close()


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)
