"""Upstream's bootstrap: a key and a CSR for the proxy, then the proxy itself.

It differs in that nothing is written when any input is wrong, that all that is
wrong is said at once, and that no half-written file is ever seen.
"""

# pathlib would add 3 ms to every start of a pod.
# ruff: noqa: PTH110, PTH112, PTH116, PTH119

from __future__ import annotations

import errno
import os

# What `signal` is made of, without the enumerations around it: they take a
# thirtieth of the whole start.
from _signal import SIG_DFL, SIGPIPE, SIGXFSZ  # type: ignore[import-not-found]
from _signal import signal as set_signal

from identity import keys, names, pem, store
from identity.errors import IdentityError
from identity.variables import DIRECTORY, LOCAL_NAME, TRUST_ANCHORS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import NoReturn

    from identity.keys import KeyMaker

    Say = Callable[[str, str], object]
    """Takes a log line: its level, its message."""

KEY = "key.p8"
CSR = "csr.der"
PROXY = "/usr/lib/linkerd/linkerd2-proxy"


class Command:
    """What to become in the end: a program, and the arguments after its name.

    A plain class, because `Record` would be two modules more.
    """

    def __init__(self, path: str = PROXY, arguments: Sequence[str] = ()) -> None:
        self.path = path
        self.arguments = tuple(arguments)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Command) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # nobody looks one up


def problems(environ: Mapping[str, str], command: Command) -> Iterator[str]:
    """Everything wrong with the inputs, in upstream's order and words."""
    directory = environ.get(DIRECTORY, "")
    if not directory:
        yield "Invalid end-entity directory: no end entity directory specified"
    else:
        try:
            if not stat_is_folder(directory):
                yield f"Invalid end-entity directory: not a directory: {directory}"
        except OSError as error:
            yield f"Invalid end-entity directory: {store.unusable(directory, error)}"
    anchors = environ.get(TRUST_ANCHORS, "")
    try:
        if not anchors:
            yield f"Failed to load trust anchors: '{TRUST_ANCHORS}' must be set"
        else:
            pem.certificates(anchors)
    except IdentityError as error:
        yield f"Failed to load trust anchors: {error}"
    try:
        names.local_name(environ.get(LOCAL_NAME, ""))
    except IdentityError as error:
        yield f"{error}: set {LOCAL_NAME}"
    if not os.access(command.path, os.X_OK):
        code = errno.EACCES if os.path.exists(command.path) else errno.ENOENT
        yield f"Failed to run proxy: {_told(code, command.path)}"


def stat_is_folder(path: str) -> bool:
    """Whether the path is a folder; OSError when nobody can tell."""
    os.stat(path)
    return os.path.isdir(path)


def prepare(
    environ: Mapping[str, str],
    say: Say,
    *,
    disk: store.Disk,
    generate: KeyMaker = keys.generate,
) -> None:
    """Write key.p8 and csr.der as checked inputs ask for.

    Raises `DirectoryUnusable`; what was there is then still there, unless the last
    step failed: then there is no CSR.
    """
    directory = environ[DIRECTORY]
    for what, name in ("key", KEY), ("CSR", CSR):
        path = f"{directory}/{name}"
        if os.path.lexists(path):
            say("info", f"Found pre-existing {what}: {path}")
    write_key_pair(directory, environ[LOCAL_NAME], disk=disk, generate=generate)


def write_key_pair(
    directory: str, name: str, *, disk: store.Disk, generate: KeyMaker
) -> None:
    """Make a key and a CSR for a checked name, and write both."""
    key = generate()
    files = {KEY: keys.key_der(key), CSR: keys.csr_der(key, name)}
    store.write_pair(directory, files, disk)


def execute(path: str, argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process with a program. Raises OSError if that fails.

    Python ignores two signals, and what is ignored stays so in the next program:
    a proxy would not notice that a peer of its pipe is gone.
    """
    set_signal(SIGPIPE, SIG_DFL)
    set_signal(SIGXFSZ, SIG_DFL)
    os.execve(path, list(argv), environ)  # noqa: S606  (what this program is for)


def run(
    environ: Mapping[str, str],
    command: Command,
    say: Say,
    *,
    disk: store.Disk | None = None,
    execute: Callable[..., object] = execute,
) -> int:
    """Check, write, become the proxy; the exit code if that could not be."""
    wrong = list(problems(environ, command))
    for problem in wrong:
        say("fatal", problem)
    if wrong:
        return 1
    try:
        prepare(environ, say, disk=disk or store.Disk())
        # Upstream passes no name at all, which Python's execve refuses; no proxy
        # looks at it.
        name = os.path.basename(command.path)
        execute(command.path, [name, *command.arguments], dict(environ))
    except IdentityError as error:
        say("fatal", str(error))
    except OSError as error:
        say("fatal", f"Failed to run proxy: {_told(error.errno or 0, command.path)}")
    return 1


def _told(code: int, path: str) -> str:
    return f"{os.strerror(code).lower()}: {path}"
