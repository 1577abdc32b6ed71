"""The certificate in use, while its files change."""

from __future__ import annotations

import resource

from identity.testing import CA
from proxyinit.inject.certificates import Certificates, KeyPair
from proxyinit.logs import Log


def test_a_certificate_is_used_once_it_has_settled() -> None:
    """A swap that is half done is neither used nor told."""
    ca = CA("webhook")
    old, new = (ca.leaf(dns=["localhost"]) for _ in range(2))
    half = KeyPair(new.pem, old.key_pem)
    found = [KeyPair(old.pem, old.key_pem), half, *[KeyPair(new.pem, new.key_pem)] * 2]
    lines: list[str] = []
    pairs = Certificates(lambda: found.pop(0), Log(write=lines.append))

    pairs.poll()
    pairs.poll()
    assert lines == []
    pairs.poll()
    assert [line for line in lines if "Updated certificate" in line] == lines
    assert len(lines) == 1


def test_a_certificate_waits_for_a_file_descriptor() -> None:
    """A poll that finds none free is no last one."""
    ca = CA("webhook")
    old, new = (ca.leaf(dns=["localhost"]) for _ in range(2))
    found = [KeyPair(old.pem, old.key_pem), *[KeyPair(new.pem, new.key_pem)] * 3]
    lines: list[str] = []
    pairs = Certificates(lambda: found.pop(0), Log(write=lines.append))
    pairs.poll()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        pairs.poll()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    pairs.poll()

    assert ["Skipping update" in lines[0], "Updated" in lines[1]] == [True, True]
    assert "Too many open files" in lines[0]
