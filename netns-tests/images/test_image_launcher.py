"""The program with the capabilities can't be talked into running anything else.

Everything that makes `python3` run what it is told is tried on it: each trick is a
file that leaves a mark in a folder open to all. Debian's python3 falls for each in
the same container, so the trick is known to work.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from images.testing.built import Built
from images.testing.oci import Mount, Security, Spec
from images.testing.pod import PROXY_INIT
from images.testing.runtime import Finished, Runtime
from proxyinit.lab import Namespace

TRICKS = "/tricks"
"""Where the folder of tricks is mounted."""

LEAVE_MARK = "import posix; posix.mkdir('/marks/left')\n"
"""What works from the first module that an interpreter loads."""
SO = """
#include <sys/stat.h>
__attribute__((constructor)) static void leave(void) { mkdir("/marks/left", 0777); }
"""

OTHER_IPTABLES = """
#include <fcntl.h>
#include <unistd.h>
int main(void)
{
    char text[8192];
    int in = open("/proc/self/status", O_RDONLY);
    int out = open("/marks/status", O_CREAT | O_WRONLY, 0666);
    write(out, text, read(in, text, sizeof text));
    return 0;
}
"""

WORDS = [
    pytest.param(["-c", LEAVE_MARK], id="code on the command line"),
    pytest.param(["-m", "trick"], id="a module"),
    pytest.param([f"{TRICKS}/trick.py"], id="a script"),
    pytest.param([TRICKS], id="a folder with __main__"),
    pytest.param(["-i", f"{TRICKS}/trick.py"], id="interactive"),
    pytest.param(["-E", "-c", LEAVE_MARK], id="options of Python before code"),
    pytest.param(["-X", "importtime", "-c", LEAVE_MARK], id="options with a value"),
]
PYTHON_VARIABLES = [
    pytest.param({"PYTHONPATH": TRICKS}, id="PYTHONPATH"),
    pytest.param({"PYTHONHOME": f"{TRICKS}/home"}, id="PYTHONHOME"),
    pytest.param({"PYTHONUSERBASE": f"{TRICKS}/user"}, id="PYTHONUSERBASE"),
    pytest.param({"LD_PRELOAD": f"{TRICKS}/trick.so"}, id="LD_PRELOAD"),
    pytest.param({"LD_AUDIT": f"{TRICKS}/trick.so"}, id="LD_AUDIT"),
]


@pytest.fixture(scope="module")
def tricks(runtime: Runtime) -> str:
    """A folder of files that leave a mark when anything of them runs."""
    folder = Path(runtime.volume(0o755))
    source = folder / "trick.c"
    source.write_text(SO)
    modules = ["trick.py", "__main__.py", "sitecustomize.py"]
    modules += ["proxyinit/__init__.py", "os.py", "encodings/__init__.py"]
    user = "user/lib/python3.11/site-packages/usercustomize.py"
    home = "home/lib/python3.11/encodings/__init__.py"
    for name in (*modules, user, home):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(LEAVE_MARK)
    for name in ("trick.so", "libxt_comment.so"):
        argv = ["gcc", "-shared", "-fPIC", "-o", str(folder / name), str(source)]
        subprocess.run(argv, check=True)
    return str(folder)


class Trial:
    """Runs programs with the tricks at hand, and looks for the mark."""

    def __init__(self, built: Built, runtime: Runtime, tricks: str, path: str) -> None:
        self.built = built
        self._runtime = runtime
        self._tricks = tricks
        self._path = path
        self.marks = Path()

    def run(
        self,
        root: Path,
        command: list[str],
        environment: Mapping[str, str] | None = None,
    ) -> tuple[bool, Finished]:
        """Whether the mark was left, and how the program ended."""
        marks = self._runtime.volume()
        self.marks = Path(marks)
        mounts = [
            Mount(self._tricks, TRICKS, read_only=True),
            Mount(marks, "/marks"),
            Mount(self._runtime.volume(), "/run"),
        ]
        environment = {"HOME": TRICKS, **(environment or {})}
        spec = Spec(
            str(root), command, self._path, environment=environment, mounts=mounts
        )
        done = self._runtime.run(spec)
        return Path(marks, "left").exists(), done


@pytest.fixture
def trial(built: Built, runtime: Runtime, tricks: str, namespace: Namespace) -> Trial:
    """Both programs, in the same containers."""
    return Trial(built, runtime, tricks, namespace.path)


@pytest.mark.parametrize("words", WORDS)
def test_arguments_are_the_programs_own(trial: Trial, words: list[str]) -> None:
    """What python3 takes for code is a mistake in proxy-init's arguments."""
    python = ["/usr/bin/python3", *words]
    with_path = {"PYTHONPATH": TRICKS} if "-m" in words else {}
    fell, _ = trial.run(trial.built.base.root, python, with_path)
    assert fell

    fell, done = trial.run(trial.built.init.root, [PROXY_INIT, *words], with_path)
    assert not fell
    assert done.status == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("environment", PYTHON_VARIABLES)
def test_variables_do_not_count(trial: Trial, environment: dict[str, str]) -> None:
    """What makes python3 load a stranger's code leaves proxy-init to its work."""
    python = ["/usr/bin/python3", "-c", "import pyexpat, site"]
    fell, _ = trial.run(trial.built.base.root, python, environment)
    assert fell

    words = ["-p", "4143", "-o", "4140", "-u", "2102"]
    fell, done = trial.run(trial.built.init.root, [PROXY_INIT, *words], environment)
    assert not fell
    assert done.status == 0, done.stderr


def test_iptables_loads_no_extension_of_a_stranger(trial: Trial) -> None:
    """XTABLES_LIBDIR reaches iptables from whoever starts it, but not through us."""
    environment = {"XTABLES_LIBDIR": TRICKS}
    rule = ["-A", "INPUT", "-m", "comment", "--comment", "x"]
    iptables = ["/usr/sbin/iptables-nft", *rule]
    fell, _ = trial.run(trial.built.init.root, iptables, environment)
    assert fell

    words = ["-p", "4143", "-o", "4140", "-u", "2102"]
    fell, done = trial.run(trial.built.init.root, [PROXY_INIT, *words], environment)
    assert not fell
    assert done.status == 0, done.stderr


OTHERS = [
    pytest.param([], {"PATH": f"{TRICKS}/bin"}, id="PATH"),
    pytest.param(
        ["--firewall-bin-path", f"{TRICKS}/bin/iptables-legacy"],
        {},
        id="--firewall-bin-path",
    ),
]


@pytest.mark.parametrize(("words", "environment"), OTHERS)
def test_programs_of_a_stranger_get_no_capabilities(
    trial: Trial, tricks: str, words: list[str], environment: dict[str, str]
) -> None:
    """Where it is told to run another iptables, that has nothing to do harm with."""
    folder = Path(tricks, "bin")
    folder.mkdir(exist_ok=True)
    source = folder / "other.c"
    source.write_text(OTHER_IPTABLES)
    for family in ("iptables", "ip6tables"):
        for suffix in ("", "-save", "-restore"):
            program = str(folder / f"{family}-legacy{suffix}")
            subprocess.run(["gcc", "-static", "-w", "-o", program, source], check=True)
    command = [PROXY_INIT, "-p", "4143", "-o", "4140", "-u", "2102", *words]
    trial.run(trial.built.init.root, command, environment)
    status = (trial.marks / "status").read_text()
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert f"{name}:\t0000000000000000" in status


def test_it_knows_no_folder_but_its_own(trial: Trial, runtime: Runtime) -> None:
    """Seen by the kernel: all modules that a run opens are in two folders."""
    listing = Path(runtime.volume(), "files")
    argv = ["strace", "-f", "-e", "trace=openat,open", "-o", str(listing)]
    root = str(trial.built.init.root)
    inside = ["chroot", root, PROXY_INIT, "-p", "4143", "-o", "4140", "--simulate"]
    subprocess.run([*argv, *inside], check=True, capture_output=True)
    opened = {
        line.split('"')[1] for line in listing.read_text().splitlines() if '"' in line
    }
    modules = {path for path in opened if path.endswith((".py", ".pyc"))}
    assert modules
    ours = ("/usr/lib/proxy-init/", "/usr/lib/python3.11/")
    assert [path for path in modules if not path.startswith(ours)] == []


def test_others_in_the_pod_have_no_capabilities(
    built: Built, runtime: Runtime, namespace: Namespace
) -> None:
    """A program without capabilities on its file holds none: none are ambient."""
    spec = Spec(
        str(built.base.root),
        ["/usr/bin/python3", "-c", "print(open('/proc/self/status').read())"],
        namespace.path,
        Security(),
    )
    done = runtime.run(spec)
    assert "CapEff:\t0000000000000000" in done.stdout
    assert "CapBnd:\t0000000000003000" in done.stdout
    assert "CapAmb:\t0000000000000000" in done.stdout
    assert "NoNewPrivs:\t1" in done.stdout
