"""What the demo refuses: broken programs, and machines that it can't play on."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from demo_runs import DEMO, WEB, Run, left_by, run

from proxyinit.lab import Namespace

BROKEN = [
    pytest.param(
        "echo no luck today >&2; exit 1",
        ["ended with status 1, expected 0", "no luck today"],
        id="proxy-init fails",
    ),
    pytest.param(
        "exit 0",
        ["6 of 14 connections went wrong", "expected proxy at port 4143"],
        id="proxy-init does nothing",
    ),
    pytest.param(
        'case "$1" in cleanup) exec PROGRAM "$@";; esac; exec PROGRAM "$@" --ipv6=0',
        ["3 of 14 connections went wrong", "[fd00:1::2]:8080"],
        id="one family is not redirected",
    ),
    pytest.param(
        'case "$1" in cleanup) exec PROGRAM "$@";; esac\n'
        'exec PROGRAM "$@" --inbound-ports-to-ignore 5000',
        ["IPv4: expected these rules", "4190,4191,4567,4568,5000"],
        id="a rule is not as expected",
    ),
    pytest.param(
        'PROGRAM cleanup; exec PROGRAM "$@"',
        ["went past the proxy and", "ran again, expected 0 and 0"],
        id="a re-run lets connections slip past",
    ),
    pytest.param(
        'case "$1" in cleanup) exit 0;; esac; exec PROGRAM "$@"',
        ["6 of 14 connections went wrong", "expected app at port 8080"],
        id="cleanup removes nothing",
    ),
    pytest.param(
        'PROGRAM "$@" || exit; case "$1" in cleanup) '
        "iptables-legacy -t nat -N PROXY_INIT_OUTPUT;; esac",
        ["IPv4: expected nothing in legacy", "chain PROXY_INIT_OUTPUT"],
        id="cleanup leaves a chain",
    ),
    pytest.param(
        'nsenter --target $PPID --net nft add table ip intruder; exec PROGRAM "$@"',
        ["the rules of this machine itself changed", "nft"],
        id="the machine's own rules change",
    ),
]
BROKEN_EXAMINATION = [
    pytest.param(
        'case "$1" in explain) exit 1;; esac; exec PROGRAM "$@"',
        ["expected an answer in JSON, found exit code 1"],
        id="explain says nothing",
    ),
    pytest.param(
        'case "$1" in explain) PROGRAM "$@" | sed s/4143/4144/;; '
        '*) exec PROGRAM "$@";; esac',
        ["expected explain to send client's connection to", "to 4143, found"],
        id="explain foretells another port",
    ),
    pytest.param(
        'case "$1" in verify) exit 0;; esac; exec PROGRAM "$@"',
        ["expected verify to end with 3, found 0"],
        id="verify overlooks the damage",
    ),
    pytest.param(
        'case "$*" in *nftables*) exit 0;; esac; exec PROGRAM "$@"',
        ["nft --stateless list table inet proxy_init failed"],
        id="no native rules",
    ),
]


def assert_told(done: Run, messages: list[str]) -> None:
    """A demo that ended with 1 said all of this, and left nothing behind."""
    assert done.status == 1
    told = " ".join(done.stderr.split())
    assert [message for message in messages if message not in told] == []
    assert "Traceback" not in done.stderr
    assert "Everything happened as it should" not in done.stdout
    assert told.endswith("nothing is left behind")
    assert left_by(done.pid) == []


def stub_of(program: str, folder: Path, script: str) -> str:
    """A shell script in place of a program, which it calls PROGRAM."""
    stub = folder / program
    real = Path(sys.executable).with_name(program)
    stub.write_text(f"#!/bin/sh\n{script.replace('PROGRAM', str(real))}\n")
    stub.chmod(0o755)
    return str(stub)


@pytest.mark.parametrize(
    ("part", "stub", "messages"),
    [
        *(pytest.param("interception", *case.values, id=case.id) for case in BROKEN),
        *(
            pytest.param("examination", *case.values, id=case.id)
            for case in BROKEN_EXAMINATION
        ),
        pytest.param(
            "injection",
            'case "$*" in *"ignore 80") exit 0;; esac; exec PROGRAM "$@"',
            ["4 of 6 connections went wrong", "expected proxy at port 4143"],
            id="what is injected redirects nothing",
        ),
    ],
)
def test_a_broken_program_is_told(
    namespace: Namespace, tmp_path: Path, part: str, stub: str, messages: list[str]
) -> None:
    """What is not as it should be ends the demo with 1 and says what was found."""
    program = stub_of("proxy-init", tmp_path, stub)
    done = run([*DEMO, "--part", part, "--program", program], inside=namespace)
    assert_told(done, messages)


_IN_PLACE_OF = 'case "$1" in {}) {};; *) exec PROGRAM "$@";; esac'
BROKEN_IDENTITY = [
    pytest.param(
        _IN_PLACE_OF.format("ca", "echo no luck today >&2; exit 1"),
        ["proxy-identity ca root ended with status 1, expected 0", "no luck today"],
        id="no authority",
    ),
    pytest.param(
        _IN_PLACE_OF.format("ca", "exit 0"),
        ["expected a certificate in", "/ca.crt"],
        id="no certificate of an authority",
    ),
    pytest.param(
        'case "$2" in issuer) shift 2; exec PROGRAM ca root "$@";; esac\n'
        'exec PROGRAM "$@"',
        ["expected the authorities root.linkerd", "root.linkerd.cluster.local"],
        id="an issuer that is a root",
    ),
    pytest.param(
        'PROGRAM "$@" && case "$1" in ca) chmod 0644 ca.key;; esac',
        ["expected ca.key with mode 0600, found 0644"],
        id="a key that everybody reads",
    ),
    pytest.param(
        _IN_PLACE_OF.format("issuer", "echo no luck today; exit 1"),
        ["proxy-identity of issuer ended with status 1", "no luck today"],
        id="no service",
    ),
    pytest.param(
        _IN_PLACE_OF.format("certify", "exit 0"),
        ["expected status 1 because of", "found status 0"],
        id="a stranger is certified",
    ),
    pytest.param(
        _IN_PLACE_OF.format("run", "exit 1"),
        ["proxy-identity of web ended with status 1, expected it to run"],
        id="nobody is certified",
    ),
    pytest.param(
        'case "$3" in --format) echo {};; *) exec PROGRAM "$@";; esac',
        ["expected names of the certificate to be ['web.shop.", "found None"],
        id="a certificate of nobody",
    ),
    pytest.param(
        'case "$1 $LINKERD2_PROXY_IDENTITY_DIR" in "run api") '
        "export LINKERD2_PROXY_IDENTITY_TOKEN_FILE=tokens/web/token;"
        f"export LINKERD2_PROXY_IDENTITY_LOCAL_NAME={WEB};;\n"
        'esac; exec PROGRAM "$@"',
        ["expected web and api to meet", "Hostname mismatch"],
        id="a peer with another's name",
    ),
    pytest.param(
        'case "$1" in run) export LINKERD2_PROXY_IDENTITY_MIN_REFRESH=1h;; esac\n'
        'exec PROGRAM "$@"',
        ["connections failed during the renewals, expected 0"],
        id="nothing is renewed in time",
    ),
]


@pytest.mark.parametrize(("stub", "messages"), BROKEN_IDENTITY)
def test_a_broken_identity_is_told(
    tmp_path: Path, stub: str, messages: list[str]
) -> None:
    """So does what is wrong with authorities, service, certificate or renewal."""
    program = stub_of("proxy-identity", tmp_path, stub)
    done = run([*DEMO, "--part", "identity", "--identity-program", program])
    assert_told(done, messages)


_HIDE_IPTABLES = f'mount -t tmpfs none {Path(shutil.which("nft") or "/").parent}; "$@"'
_WITHOUT_RICH = (
    "import sys; sys.modules['rich'] = None; import proxyinit.demo.__main__ as main; "
    "main.demo()"
)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        pytest.param(["unshare", "--user", *DEMO], "root is needed", id="not root"),
        pytest.param(
            ["unshare", "--mount", "sh", "-c", _HIDE_IPTABLES, "sh", *DEMO],
            "not found: iptables-legacy-save",
            id="no iptables",
        ),
        pytest.param(
            [*DEMO, "--program", "/nowhere/proxy-init"],
            "there is no proxy-init at /nowhere/proxy-init",
            id="no proxy-init",
        ),
        pytest.param(
            ["setpriv", "--bounding-set=-net_admin", *DEMO],
            "can't make network namespaces here: Operation not permitted",
            id="root without the capability",
        ),
        pytest.param(
            [sys.executable, "-c", _WITHOUT_RICH], "rich is not installed", id="no rich"
        ),
    ],
)
def test_an_unsuitable_machine_is_told(argv: list[str], message: str) -> None:
    """What is missing is said in one sentence, before anything is shown or made."""
    done = run(argv)
    assert (done.status, done.stdout) == (1, "")
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert left_by(done.pid) == []
