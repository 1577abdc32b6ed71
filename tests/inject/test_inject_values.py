"""Values of the chart: what is missing, what is wrong, what the files hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from proxyinit.inject import configuration, values
from proxyinit.inject.configuration import Configuration, Locations
from proxyinit.inject.errors import ValuesError
from proxyinit.inject.values import Values
from proxyinit.logs import Log


def test_the_charts_defaults() -> None:
    """What the contract lists."""
    found = Values()

    assert (found.init.iptables_mode, found.proxy.native_sidecar) == ("nft", True)
    assert (found.disable_ipv6, found.cni_enabled) == (True, False)
    assert found.init.ignore_inbound_ports == "4567,4568"
    assert (found.proxy.uid, found.proxy.gid) == (2102, -1)
    assert found.proxy.opaque_ports == "25,587,3306,4444,5432,6379,9300,11211"
    assert found.cluster_networks.endswith("192.168.0.0/16,fd00::/8")


@pytest.mark.parametrize(
    "chart",
    [
        {},
        {"proxy": None, "proxyInit": {}, "identity": None},
        {"proxy": {"cores": None, "runtime": {"workers": {"maximumCPURatio": None}}}},
        {"proxy": {"image": {}}, "unknown": {"key": 1}},
    ],
    ids=str,
)
def test_missing_keys_mean_the_defaults(chart: dict[str, Any]) -> None:
    """Null as well, and keys that are not ours."""
    assert values.load(chart) == Values()


def test_an_older_charts_values() -> None:
    """A cluster of another version: legacy, an init image, its own settings."""
    found = values.load(
        {
            "linkerdVersion": "enterprise-2.18.0",
            "proxy": {
                "nativeSidecar": False,
                "inbound": {"server": {"http2": {"keepAliveInterval": "100s"}}},
            },
            "proxyInit": {
                "iptablesMode": "legacy",
                "image": {"name": "ghcr.io/buoyantio/proxy-init", "version": "v"},
            },
        }
    )

    assert (found.init.iptables_mode, found.init.image) == (
        "legacy",
        "ghcr.io/buoyantio/proxy-init",
    )
    assert found.proxy_version == "enterprise-2.18.0"


@pytest.mark.parametrize(
    ("chart", "problem"),
    [
        (
            {"proxyInit": {"iptablesMode": ""}},
            "proxyInit.iptablesMode: expected one of",
        ),
        ({"proxyInit": {"iptablesMode": "nf"}}, "proxyInit.iptablesMode: expected one"),
        ({"proxy": {"uid": "2102"}}, "proxy.uid: expected a whole number"),
        ({"proxy": {"uid": 1.5}}, "proxy.uid: expected a whole number"),
        ({"proxy": {"uid": float("inf")}}, "proxy.uid: "),
        ({"proxy": {"ports": {"inbound": 0}}}, "proxy.ports.inbound: expected a port"),
        ({"proxy": {"await": "yes"}}, "proxy.await: expected true or false"),
        ({"proxy": {"image": "x"}}, "proxy.image.name: expected an object"),
        ({"proxy": []}, "proxyInit.closeWaitTimeoutSecs"),
        ({"proxy": "x"}, "proxy: expected an object"),
        ({"proxy": {"additionalEnv": [1]}}, "proxy.additionalEnv: expected a list"),
        ({"proxy": {"logHTTPHeaders": "on"}}, "proxy.logHTTPHeaders: expected one of"),
        ({"clusterNetworks": "10.0.0.0/8,x"}, "cannot parse destination get networks:"),
        ({"clusterNetworks": "10.0.0.0"}, "'10.0.0.0' is no CIDR"),
        ({"linkerdVersion": True}, "linkerdVersion: expected text"),
        (
            {"proxyInit": {"command": "x"}},
            "proxyInit.command: expected a list of texts",
        ),
    ],
    ids=str,
)
def test_mistakes(chart: dict[str, Any], problem: str) -> None:
    """Each is told with its path; what is asked of the chart is asked of all of it."""
    wrong = {
        **chart,
        "proxyInit": {"closeWaitTimeoutSecs": 1, **chart.get("proxyInit", {})},
    }
    with pytest.raises(ValuesError) as caught:
        values.load(wrong)

    assert any(problem in each for each in caught.value.problems)
    assert any("closeWaitTimeoutSecs" in each for each in caught.value.problems)


def test_the_digest_is_over_the_text_as_it_is() -> None:
    """The contract's check value."""
    found = values.load({"identityTrustAnchorsPEM": "IdentityTrustAnchorsPEM"})

    assert found.trust_root_sha256.startswith("5090806b")
    assert found.trust_root_sha256.endswith("7fc2")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\na: 2\n", "twice"),
        ("a: &x 1\nb: *x\n", "aliases"),
        ("a:\n\t- 1\n", "tab"),
        ("- 1\n", "an object"),
        ("a: [", "expected"),
        ("a: !!python/object:os.system {}\n", "tag"),
    ],
)
def test_bad_yaml(text: str, why: str) -> None:
    """One file that everybody reads in the same way."""
    with pytest.raises(ValuesError, match=why):
        values.load(configuration.parse(text))


class Files:
    """The two files, and a configuration that looks at them."""

    def __init__(self, folder: Path) -> None:
        self.values, self.roots = folder / "values", folder / "ca-bundle.crt"
        self.write("linkerdVersion: v1\n")
        self.roots.write_text("PEM\n")
        self.lines: list[str] = []
        log = Log("info", write=self.lines.append)
        locations = Locations(self.values, self.roots, "linkerd")
        self.configuration = Configuration(locations, log)

    def write(self, text: str) -> None:
        """Replace the values."""
        self.values.write_text(text)

    @property
    def version(self) -> str:
        """What is in use."""
        return self.configuration.current().linkerd_version


def test_changes_are_seen_by_the_next_request(tmp_path: Path) -> None:
    """Values and anchors, without a restart."""
    files = Files(tmp_path)
    assert files.version == "v1"

    files.write("linkerdVersion: version-2\n")
    assert files.version == "version-2"
    files.roots.write_text("OTHER PEM\n")
    assert files.configuration.current().trust_anchors == "OTHER PEM\n"
    assert len(files.lines) == 2


def test_contents_decide_in_the_end(tmp_path: Path) -> None:
    """A file of the same size and age is read again by and by."""
    files = Files(tmp_path)
    before = files.values.stat()
    files.write("linkerdVersion: v2\n")
    os.utime(files.values, ns=(before.st_atime_ns, before.st_mtime_ns))

    files.configuration.refresh()
    assert files.version == "v2"


@pytest.mark.parametrize(
    "broken",
    ["proxy: {uid: x}\n", "a: [", "", None],
    ids=["values", "YAML", "an empty bundle", "no file"],
)
def test_what_can_not_be_used_is_told_once(tmp_path: Path, broken: str | None) -> None:
    """The last good values stay, until there are better ones."""
    files = Files(tmp_path)
    if broken is None:
        files.values.unlink()
    elif broken:
        files.write(broken)
    else:
        files.roots.write_text("")

    assert [files.version for _ in range(3)] == ["v1"] * 3
    files.configuration.refresh()
    (line,) = files.lines
    assert " level=error " in line
    assert "keeping the values in use" in line
    files.roots.write_text("PEM\n")
    files.write("linkerdVersion: v3\n")
    assert files.version == "v3"


def test_start_needs_files_that_can_be_used(tmp_path: Path) -> None:
    """Nothing is in use yet that could stay."""
    with pytest.raises(ValuesError, match="can't read"):
        Configuration(Locations(tmp_path / "a", tmp_path / "b", "linkerd"), Log())
