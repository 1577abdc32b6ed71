"""The probe's own cable speaks IPv6 where new interfaces are told not to."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from proxyinit.lab import Namespace

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
INSTALL = ("-p", "4143", "-o", "4140", "-u", "2102")
DISABLE = "/proc/sys/net/ipv6/conf/default/disable_ipv6"


def test_where_ipv6_is_off_for_new_interfaces(namespace: Namespace) -> None:
    """As container runtimes set it: both IP versions are tried all the same."""
    off = namespace.exec(["sh", "-c", f"echo 1 >{DISABLE}"])
    assert (off.returncode, namespace.exec([PROGRAM, *INSTALL]).returncode) == (0, 0)

    done = namespace.exec([PROGRAM, "verify", "--probe"])

    assert done.returncode == 0, done.stdout
    assert len(re.findall("^ok +probe .*, IPv[46] ", done.stdout, re.MULTILINE)) == 6
    assert namespace.exec(["cat", DISABLE]).stdout == "1\n"
