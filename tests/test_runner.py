"""Running other programs: input, output, failure, time, and where they are found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxyinit.errors import CommandFailed
from proxyinit.runner import Output, SystemRunner

SHELL = "/bin/sh"


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_input_and_output() -> None:
    """Both ways whole, beyond what a pipe would hold, separate from errors."""
    text = "line\n" * 100_000

    found = SystemRunner().run([SHELL, "-c", "cat; echo aside >&2"], text)

    assert found == Output(text, "aside\n")


def test_text_that_is_no_utf8_comes_back() -> None:
    """Bytes of others' rules survive being read and written."""
    found = SystemRunner().run([SHELL, "-c", r"printf 'a\377b'"])

    assert found.stdout.encode("utf-8", "surrogateescape") == b"a\xffb"
    again = SystemRunner().run([SHELL, "-c", "cat"], found.stdout)
    assert again.stdout == found.stdout


def test_failure() -> None:
    """Exit code and standard error are kept word for word, with the arguments."""
    argv = [SHELL, "-c", "echo 'line 2 failed' >&2; exit 4"]

    with pytest.raises(CommandFailed) as caught:
        SystemRunner().run(argv, "*nat\n")

    assert caught.value.argv == tuple(argv)
    assert caught.value.status == 4
    assert caught.value.stderr == "line 2 failed\n"
    assert caught.value.stdin == "*nat\n"


def test_a_program_that_can_t_be_started(tmp_path: Path) -> None:
    """It fails as the shell would say, 127, with the kernel's reason."""
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(CommandFailed, match="can't start: ") as caught:
            SystemRunner().run([str(path)])
        assert caught.value.status == 127


def test_a_program_that_takes_too_long() -> None:
    """It is stopped, and the message says so."""
    with pytest.raises(CommandFailed, match=r"gave no answer within 0\.05 s") as caught:
        SystemRunner(timeout_s=0.05).run([SHELL, "-c", "exec sleep 60"])

    assert caught.value.status == -9


def test_side_by_side(tmp_path: Path) -> None:
    """All run at once and answer in the order asked: each waits for the other."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    first, second = SystemRunner(timeout_s=20).run_all(
        [
            [SHELL, "-c", f"read line <{fifo}; echo $line"],
            [SHELL, "-c", f"echo word >{fifo}; echo written"],
        ]
    )

    assert (first.stdout, second.stdout) == ("word\n", "written\n")


def test_of_several_failures_the_first_is_raised() -> None:
    """After all have ended."""
    with pytest.raises(CommandFailed) as caught:
        SystemRunner().run_all([[SHELL, "-c", f"exit {n}"] for n in (0, 3, 5)])

    assert caught.value.status == 3


@pytest.mark.parametrize("code", [0, 3])
def test_no_descriptor_stays_open(code: int) -> None:
    """Whatever becomes of the programs."""
    before = sorted(Path("/proc/self/fd").iterdir())
    runner = SystemRunner()

    for _ in range(3):
        try:
            runner.run_all([[SHELL, "-c", f"exit {code}"]] * 2)
        except CommandFailed:
            assert code

    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_where_programs_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the folder given, else PATH and the system's; only what can be executed."""
    given, path = tmp_path / "given", tmp_path / "path"
    given.mkdir()
    path.mkdir()
    (path / "plain").touch()
    script(path / "both", "")
    monkeypatch.setenv("PATH", f"{path}:")
    anywhere, there = SystemRunner(), SystemRunner(f"{given}/")

    assert there.find("both") is None
    script(given / "both", "")
    assert there.find("both") == str(given / "both")
    assert there.find("sh") is None
    assert anywhere.find("both") == str(path / "both")
    assert anywhere.find("plain") is None
    assert anywhere.find("sh") in ("/usr/bin/sh", "/bin/sh")
    assert anywhere.find("no such program") is None


def test_messages_are_not_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Causes are told by the words of the C locale."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")

    assert SystemRunner().run([SHELL, "-c", "echo $LC_ALL"]).stdout == "C\n"
