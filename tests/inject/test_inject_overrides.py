"""What each annotation changes, and what becomes of those that can't be read."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyinit.flags import INSTALL_FLAGS
from proxyinit.inject import annotations as keys
from proxyinit.inject import init_container, typed, values
from proxyinit.inject.override_table import TABLE
from proxyinit.inject.overrides import SHAPING, overridden, wants_debug
from proxyinit.inject.values import Values
from proxyinit.options import problems, redirect_config
from proxyinit.pflag import parse
from proxyinit.rules import PortRange

C = "config.linkerd.io/"
ROOT = values.load({"proxyInit": {"runAsRoot": True}})


def changed(key: str, value: str, base: Values | None = None) -> dict[str, Any]:
    """What one annotation changes, by section and field."""
    base = base or Values()
    found = overridden(base, {key: value}, {}).values
    return {
        f"{section}.{name}": new
        for section in ("proxy", "init", "debug")
        for name, new in vars(getattr(found, section)).items()
        if new != getattr(getattr(base, section), name)
    }


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (
            "skip-inbound-ports",
            "22,100-200",
            {"init.ignore_inbound_ports": "22,100-200"},
        ),
        ("skip-outbound-ports", "25", {"init.ignore_outbound_ports": "25"}),
        ("skip-outbound-ports", "", {"init.ignore_outbound_ports": ""}),
        ("skip-subnets", "10.0.0.0/8", {"init.skip_subnets": "10.0.0.0/8"}),
        ("skip-inbound-subnets", "fd00::/8", {"init.skip_inbound_subnets": "fd00::/8"}),
        (
            "skip-outbound-subnets",
            "10.0.0.0/8,1.1.1.1/32",
            {"init.skip_outbound_subnets": "10.0.0.0/8,1.1.1.1/32"},
        ),
        ("inbound-port", "1234", {"proxy.inbound_port": 1234}),
        ("outbound-port", "1234", {"proxy.outbound_port": 1234}),
        ("admin-port", "1234", {"proxy.admin_port": 1234}),
        ("control-port", "1234", {"proxy.control_port": 1234}),
        ("proxy-uid", "1000700000", {"proxy.uid": 1000700000}),
        ("proxy-gid", "5", {"proxy.gid": 5}),
        ("proxy-gid", "-7", {"proxy.gid": -7}),
        ("close-wait-timeout", "1m30.9s", {"init.close_wait_s": 90}),
        ("close-wait-timeout", "", {}),
        ("proxy-image", "i", {"proxy.image": "i"}),
        ("proxy-version", "v2", {"proxy.version": "v2"}),
        ("image-pull-policy", "Always", {"proxy.pull_policy": "Always"}),
        (
            "proxy-cpu-request",
            "1500m",
            {"proxy.cpu_request": "1500m", "proxy.workers_minimum": 2},
        ),
        (
            "proxy-cpu-limit",
            "2.5",
            {"proxy.cpu_limit": "2.5", "proxy.workers_maximum": 3},
        ),
        ("proxy-memory-request", "64Mi", {"proxy.memory_request": "64Mi"}),
        ("proxy-memory-limit", "1e9", {"proxy.memory_limit": "1e9"}),
        (
            "proxy-ephemeral-storage-request",
            "1Gi",
            {"proxy.ephemeral_storage_request": "1Gi"},
        ),
        (
            "proxy-ephemeral-storage-limit",
            "2G",
            {"proxy.ephemeral_storage_limit": "2G"},
        ),
        ("proxy-cpu-ratio-limit", "0.3", {"proxy.workers_ratio": 0.3}),
        ("proxy-enable-native-sidecar", "F", {"proxy.native_sidecar": False}),
        ("proxy-await", "disabled", {"proxy.wait": False}),
        ("opaque-ports", "25,", {"proxy.opaque_ports": "25"}),
        ("proxy-log-level", "debug", {"proxy.log_level": "debug"}),
        ("proxy-log-format", "json", {"proxy.log_format": "json"}),
        ("proxy-log-http-headers", "insecure", {"proxy.log_http_headers": "insecure"}),
        ("proxy-admin-shutdown", "enabled", {"proxy.shutdown_endpoint": True}),
        (
            "proxy-require-identity-inbound-ports",
            "80",
            {"proxy.require_identity_ports": "80"},
        ),
        ("proxy-metrics-hostname-labels", "true", {"proxy.hostname_labels": True}),
        ("enable-external-profiles", "1", {"proxy.external_profiles": True}),
        ("enable-gateway", "t", {"proxy.gateway": True}),
        (
            "proxy-outbound-connect-timeout",
            "2s",
            {"proxy.outbound_connect_timeout": "2000ms"},
        ),
        (
            "proxy-inbound-connect-timeout",
            "1.5s",
            {"proxy.inbound_connect_timeout": "1500ms"},
        ),
        ("shutdown-grace-period", "1m", {"proxy.shutdown_grace_period": "60000ms"}),
        (
            "proxy-outbound-discovery-cache-unused-timeout",
            "2500ms",
            {"proxy.outbound_discovery_timeout": "2s"},
        ),
        (
            "proxy-inbound-discovery-cache-unused-timeout",
            "1h",
            {"proxy.inbound_discovery_timeout": "3600s"},
        ),
        (
            "proxy-disable-outbound-protocol-detect-timeout",
            "TRUE",
            {"proxy.no_outbound_detect_timeout": True},
        ),
        (
            "proxy-disable-inbound-protocol-detect-timeout",
            "true",
            {"proxy.no_inbound_detect_timeout": True},
        ),
        ("default-inbound-policy", "deny", {"proxy.default_inbound_policy": "deny"}),
        ("access-log", "apache", {"proxy.access_log": "apache"}),
        ("debug-image", "i", {"debug.image": "i"}),
        ("debug-image-version", "v", {"debug.version": "v"}),
        ("debug-image-pull-policy", "Never", {"debug.pull_policy": "Never"}),
        ("pod-inbound-ports", "80", {}),
    ],
)
def test_annotations(key: str, value: str, expected: dict[str, Any]) -> None:
    """Each sets what the contract says, and nothing else."""
    assert expected == changed(C + key, value, ROOT)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (
            "config.alpha.linkerd.io/proxy-wait-before-exit-seconds",
            "5",
            {"proxy.wait_before_exit_s": 5},
        ),
        ("linkerd.io/inject", "ingress", {"proxy.ingress": True}),
        ("linkerd.io/inject", "enabled", {}),
    ],
)
def test_annotations_of_other_prefixes(
    key: str, value: str, expected: dict[str, Any]
) -> None:
    """Those that are not config.linkerd.io's."""
    assert expected == changed(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("inbound-port", "http"),
        ("inbound-port", "0"),
        ("outbound-port", "99999999999999999999"),
        ("proxy-uid", "-1"),
        ("proxy-uid", "1.5"),
        ("proxy-gid", "4294967295"),
        ("proxy-cpu-request", "1 core"),
        ("proxy-memory-limit", "20MB"),
        ("proxy-cpu-ratio-limit", "1"),
        ("proxy-cpu-ratio-limit", "0"),
        ("proxy-cpu-ratio-limit", "nan"),
        ("proxy-await", "true"),
        ("proxy-admin-shutdown", "yes"),
        ("enable-gateway", "yes"),
        ("shutdown-grace-period", "5"),
        ("shutdown-grace-period", "-5s"),
        ("proxy-inbound-connect-timeout", "1e3s"),
        ("default-inbound-policy", "Deny"),
        ("proxy-cpu-limit", "9" * 60),
        ("proxy-memory-limit", "1e19"),
        ("close-wait-timeout", "soon"),
        ("skip-outbound-subnets", "10.0.0.0"),
        ("skip-inbound-subnets", "mysql"),
        ("proxy-log-http-headers", "on"),
        ("proxy-enable-native-sidecar", "enabled"),
    ],
)
def test_a_bad_value_changes_nothing_and_is_told(key: str, value: str) -> None:
    """Whoever typed it reads what was expected and what they typed."""
    assert changed(C + key, value, ROOT) == {}
    (warning,) = overridden(ROOT, {C + key: value}, {}).warnings
    assert warning.startswith(f"{C}{key}: expected ")
    assert warning.endswith(f", got {value!r}: ignored")


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("skip-inbound-ports", "http", "ignore_inbound_ports"),
        ("skip-outbound-ports", "25,,", "ignore_outbound_ports"),
        ("skip-subnets", "10.0.0.0", "skip_subnets"),
    ],
)
def test_lists_that_upstream_never_checks(key: str, value: str, field: str) -> None:
    """They are passed on as they are; but the person is told what will happen."""
    assert changed(C + key, value) == {f"init.{field}": value}
    (warning,) = overridden(Values(), {C + key: value}, {}).warnings
    assert "proxy-init may refuse it" in warning


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param(["", "false", ""], False, id="beta alone"),
        pytest.param(["true", "false", "false"], True, id="the first counts"),
        pytest.param(["bad", "false", ""], True, id="presence decides"),
        pytest.param(["", "", "false"], False, id="alpha alone"),
        pytest.param(["", "", ""], True, id="the chart's"),
    ],
)
def test_native_sidecar(annotations: list[str], *, expected: bool) -> None:
    """Three keys, of which the first that is there counts."""
    given = {k: v for k, v in zip(keys.NATIVE_SIDECAR, annotations, strict=True) if v}

    assert overridden(Values(), given, {}).values.proxy.native_sidecar is expected


def test_close_wait_needs_root() -> None:
    """It is left out with a reason; without leniency rendering refuses it."""
    given = {keys.CLOSE_WAIT: "30s"}

    found = overridden(Values(), given, {})
    assert found.values == Values()
    (warning,) = found.warnings
    assert "proxyInit.runAsRoot must be set" in warning
    strict = overridden(Values(), given, {}, lenient=False)
    assert strict.values.init.close_wait_s == 30


@pytest.mark.parametrize(
    ("value", "expected", "warned"),
    [
        (None, False, False),
        ("true", True, False),
        ("0", False, False),
        ("enabled", False, True),
    ],
)
def test_debug(value: str | None, *, expected: bool, warned: bool) -> None:
    """A switch; what can't be read means no."""
    wanted, warnings = wants_debug(value)

    assert (expected, warned) == (wanted, bool(warnings))


def env(*names: str, value: str = "x") -> str:
    """A layer of variables."""
    return json.dumps([{"name": name, "value": value} for name in names])


def test_variables_of_all_layers() -> None:
    """By name: values, then namespace, then workload; a namesake keeps its place."""
    base = values.load(
        {"proxy": {"additionalEnv": [{"name": "A", "value": "0"}, {"name": "B"}]}}
    )
    layers = (env("A", "C", value="ns"), env("C", value="pod"))
    found = overridden(base, {}, {}, layers).values.proxy.additional_env

    assert found == (
        {"name": "A", "value": "ns"},
        {"name": "B"},
        {"name": "C", "value": "pod"},
    )


@pytest.mark.parametrize(
    "layer",
    ["{}", "[", "[1]", '[{"value":"x"}]', '[{"name":1}]', '[{"name":""}]', "[" * 10**5],
    ids=lambda layer: layer[:20],
)
def test_a_bad_layer_is_left_out(layer: str) -> None:
    """The others count all the same."""
    found = overridden(Values(), {}, {}, (layer, env("B")))

    assert [item["name"] for item in found.values.proxy.additional_env] == ["B"]
    assert len(found.warnings) == 1


def test_inherited_keys() -> None:
    """Forty that are metered, three more, and the two of ours."""
    assert len(keys.METERED) == len(set(keys.METERED)) == 40
    assert set(keys.INHERITABLE) - set(keys.METERED) == {
        "config.alpha.linkerd.io/proxy-wait-before-exit-seconds",
        "config.alpha.linkerd.io/proxy-enable-native-sidecar",
        "linkerd.io/inject",
        f"{C}skip-inbound-subnets",
        f"{C}skip-outbound-subnets",
    }
    for key in (
        *(f"{C}close-wait-timeout", f"{C}proxy-cpu-ratio-limit", f"{C}enable-gateway"),
        *(f"{C}debug-image", "config.beta.linkerd.io/proxy-enable-native-sidecar"),
        "example.com/other",
    ):
        assert keys.inherited({key: "x"}, {}) == {}


def test_a_key_of_ones_own_is_not_inherited() -> None:
    """Not even if it is empty."""
    namespace = {f"{C}admin-port": "1", f"{C}control-port": "2"}

    assert keys.inherited(namespace, {f"{C}admin-port": ""}) == {
        f"{C}control-port": "2"
    }


def test_every_override_shapes() -> None:
    """What the recipe of a pod leaves out would be read from no annotation."""
    assert {override.key for override in TABLE} <= SHAPING


@pytest.mark.parametrize(
    ("text", "number", "cores"),
    [
        ("0", "0", 0),
        ("100m", "0.1", 1),
        ("1", "1", 1),
        ("1001m", "1.001", 2),
        ("1.5", "1.5", 2),
        (".5", "0.5", 1),
        ("2k", "2000", 2000),
        ("1Ki", "1024", 1024),
        ("1e1", "10", 10),
        ("1E1", "10", 10),
        ("100u", "0.0001", 1),
    ],
)
def test_quantities(text: str, number: str, cores: int) -> None:
    """As Kubernetes writes them; part of a core needs a whole thread."""
    assert Decimal(number) == typed.parse_quantity(text)
    assert cores == typed.whole_cores(text)


PORTS = st.integers(1, 65535)
RANGES = st.tuples(PORTS, PORTS).map(lambda pair: tuple(sorted(pair)))
RANGE_LISTS = st.lists(RANGES, max_size=5)
SUBNETS = st.sampled_from(["10.0.0.0/8", "192.168.1.0/24", "fd00::/8", "1.2.3.4/32"])
SUBNET_LISTS = st.lists(SUBNETS, max_size=3).map(",".join)


def spelled(ranges: list[tuple[int, int]]) -> str:
    """A comma list."""
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


@given(
    ports=st.lists(PORTS, min_size=4, max_size=4, unique=True),
    inbound=RANGE_LISTS,
    outbound=RANGE_LISTS,
    subnets=st.tuples(SUBNET_LISTS, SUBNET_LISTS, SUBNET_LISTS),
    uid=st.integers(0, 4294967294),
    gid=st.integers(-3, 4294967294),
    more=st.fixed_dictionaries(
        {
            "iptablesMode": st.sampled_from(["nft", "legacy"]),
            "logLevel": st.sampled_from(["", "debug"]),
            "logFormat": st.sampled_from(["", "json"]),
            "closeWaitTimeoutSecs": st.integers(0, 3600),
            "runAsRoot": st.just(value=True),
        }
    ),
    disable_ipv6=st.booleans(),
)
def test_injected_arguments_lead_back_to_the_configuration(
    *,
    ports: list[int],
    inbound: list[tuple[int, int]],
    outbound: list[tuple[int, int]],
    subnets: tuple[str, str, str],
    uid: int,
    gid: int,
    more: dict[str, Any],
    disable_ipv6: bool,
) -> None:
    """proxy-init reads from its arguments what values and annotations asked for."""
    names = ("inbound-port", "outbound-port", "control-port", "admin-port")
    given_annotations = {
        **{C + name: str(port) for name, port in zip(names, ports, strict=True)},
        f"{C}skip-inbound-ports": spelled(inbound),
        f"{C}skip-outbound-ports": spelled(outbound),
        f"{C}skip-subnets": subnets[0],
        f"{C}skip-inbound-subnets": subnets[1],
        f"{C}skip-outbound-subnets": subnets[2],
        f"{C}proxy-uid": str(uid),
        f"{C}proxy-gid": str(gid),
    }
    base = values.load({"disableIPv6": disable_ipv6, "proxyInit": more})
    found = overridden(base, given_annotations, {})
    arguments = parse(init_container.arguments(found.values), INSTALL_FLAGS)

    assert found.warnings == ()
    assert [*arguments.problems, *problems(arguments), *arguments.words] == []
    config = redirect_config(arguments)
    proxy = tuple(PortRange(port, port) for port in ports[2:])
    assert (ports[0], ports[1]) == (config.inbound_port, config.outbound_port)
    assert (uid,) == config.proxy_uids
    assert ((gid,) if gid >= 0 else ()) == config.proxy_gids
    ignored = tuple(PortRange(a, b) for a, b in inbound)
    assert proxy + ignored == config.inbound_ports_to_ignore
    ignored = tuple(PortRange(a, b) for a, b in outbound)
    assert ignored == config.outbound_ports_to_ignore
    listed = [item for item in f"{subnets[0]},{subnets[1]}".split(",") if item]
    assert listed == [str(each) for each in config.inbound_subnets_to_ignore]
    listed = [item for item in subnets[2].split(",") if item]
    assert listed == [str(each) for each in config.outbound_subnets_to_ignore]
    assert arguments.values["ipv6"] is not disable_ipv6
    assert more["closeWaitTimeoutSecs"] == arguments.values["timeout-close-wait-secs"]
    assert (more["logLevel"] or "info") == arguments.values["log-level"]
    assert (more["logFormat"] or "plain") == arguments.values["log-format"]


@given(
    key=st.sampled_from(["skip-inbound-ports", "skip-outbound-ports", "skip-subnets"]),
    value=st.text(alphabet="0123456789-,./:af x", min_size=1, max_size=12),
)
def test_a_warning_comes_exactly_when_proxy_init_would_refuse(
    key: str, value: str
) -> None:
    """Nobody is warned without need, and nobody finds out from a pod that fails."""
    found = overridden(Values(), {C + key: value}, {})
    arguments = parse(init_container.arguments(found.values), INSTALL_FLAGS)

    assert bool(found.warnings) is bool(arguments.problems)
