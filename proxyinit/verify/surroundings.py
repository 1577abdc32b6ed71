"""What rules alone don't tell: who listens, what else is hooked in. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from proxyinit.config import RedirectConfig
from proxyinit.reach import rivals
from proxyinit.rules import INET, IPV6
from proxyinit.verify.checks import FAIL, OK, UNKNOWN, WARN, Check
from proxyinit.verify.deviation import spelled
from proxyinit.verify.facts import Facts, Listener, NatHook
from proxyinit.verify.readback import Wanted
from proxyinit.verify.sense import REPAIR, Holder, backend_name, row

if TYPE_CHECKING:
    from proxyinit.rules import Version

PRIORITY = -100
"""Where nat is asked in iptables, and in our own table (NF_IP_PRI_NAT_DST)."""

NEARLY_FULL = 0.9


def configuration(config: RedirectConfig) -> list[Check]:
    """The configuration itself makes sense."""
    return row("configuration", "makes sense", _oddities(config))


def _oddities(config: RedirectConfig) -> Iterator[Check]:
    if config.inbound_port == config.outbound_port:
        text = f"both directions lead to port {config.inbound_port}"
        yield Check("configuration", FAIL, text, REPAIR)
    for what, ports, subnets in (
        ("inbound", config.inbound_ports_to_ignore, config.inbound_subnets_to_ignore),
        (
            "outbound",
            config.outbound_ports_to_ignore,
            config.outbound_subnets_to_ignore,
        ),
    ):
        whole = next((s for s in subnets if s.prefix == 0), None)
        every = next((p for p in ports if (p.low, p.high) == (1, 65535)), None)
        if whole or every:
            text = f"{what} connections are all ignored: {whole or 'every port'}"
            advice = f"shorten --{what}-{'subnets' if whole else 'ports'}-to-ignore"
            yield Check("configuration", WARN, text, advice)


def ipv6(facts: Facts, holder: Holder, wanted: Wanted, *, asked: bool) -> Check:
    """IPv6 is redirected, or there is none; `asked` when flags say --ipv6=false."""
    if IPV6 in holder.unread:
        text = "its rules could not be read"
        return Check("IPv6", UNKNOWN, text, "make them readable, as above")
    if wanted.ipv6:
        return Check("IPv6", OK, "redirected")
    if not facts.ipv6:
        return Check("IPv6", OK, "this kernel has none")
    used = [address for address in facts.addresses if ":" in address]
    if not used:
        return Check("IPv6", OK, "not redirected, and not in use")
    text = f"in use ({used[0]}) but not redirected: it passes by the proxy"
    advice = "run proxy-init without --ipv6=false"
    return Check("IPv6", WARN if asked else FAIL, text, advice)


# === who listens ===


def proxies(facts: Facts, wanted: Wanted) -> list[Check]:
    """The proxy listens where connections are sent to, as a user who may pass."""
    config = wanted.config
    found = []
    for direction, port in (
        ("inbound", config.inbound_port),
        ("outbound", config.outbound_port),
    ):
        name = f"{direction} proxy"
        if facts.listeners is None:
            text = "sockets can't be looked at"
            found.append(Check(name, UNKNOWN, text, "run as root"))
            continue
        problems = _unheard(facts.listeners, wanted, facts, name, port)
        # A socket for both versions has one user: it is told once.
        found += row(name, f"listens on {port}", dict.fromkeys(problems))
    return found


def versions_in_use(facts: Facts, wanted: Wanted) -> list[Version]:
    """The IP versions to be redirected that the namespace has addresses of."""
    used = {6 if ":" in address else 4 for address in facts.addresses}
    return [v for v in wanted.versions if v in used or not used]


def _unheard(
    listeners: tuple[Listener, ...],
    wanted: Wanted,
    facts: Facts,
    name: str,
    port: int,
) -> Iterator[Check]:
    config = wanted.config
    hearing = {
        version: [s for s in listeners if s.port == port and s.hears(version)]
        for version in versions_in_use(facts, wanted)
    }
    deaf = " and ".join(
        f"IPv{version}" for version, here in hearing.items() if not here
    )
    if deaf:
        text = f"nothing listens on {port} for {deaf}"
        if any(
            s.uid in config.proxy_uids or s.port in _ports(config) for s in listeners
        ):
            advice = "give proxy-init the ports that the proxy listens on"
            yield Check(name, FAIL, f"{text}, though the proxy runs", advice)
        else:
            advice = "start the proxy; until then connections are refused"
            yield Check(name, WARN, f"{text}: the proxy does not run (yet)", advice)
    for here in hearing.values():
        if here and "inbound" in name and all(one.on_loopback for one in here):
            text = f"{here[0].address} port {port} can't be reached from outside"
            yield Check(name, FAIL, text, "let the proxy listen on every address")
        yield from _strangers(here, config, name)


def _ports(config: RedirectConfig) -> tuple[int, int]:
    return config.inbound_port, config.outbound_port


def _strangers(
    here: list[Listener], config: RedirectConfig, name: str
) -> Iterator[Check]:
    for listener in here:
        if not config.proxy_uids or listener.uid in config.proxy_uids:
            continue
        users = ",".join(map(str, config.proxy_uids))
        text = (
            f"port {listener.port} belongs to user {listener.uid}, not to {users}, "
            "whose connections pass"
        )
        if config.proxy_gids:
            advice = "see that its group is among --proxy-gid"
            yield Check(name, WARN, text, advice)
        else:
            advice = f"run the proxy as {users}, or proxy-init --proxy-uid"
            yield Check(name, FAIL, f"{text}: a loop", advice)


# === what else is hooked in ===


def hooks(facts: Facts, holder: Holder) -> list[Check]:
    """Ours is where the kernel asks for nat, and nobody else is asked before."""
    problems = [*_own_hooks(facts, holder), *_rivals(facts, holder)]
    return row("hooks", "the kernel asks ours", problems)


def _own_hooks(facts: Facts, holder: Holder) -> Iterator[Check]:
    if INET in holder.tables:
        live = holder.tables[INET]
        wanted = Wanted(RedirectConfig(1, 2), ipv6=True).table(INET)
        for chain in wanted.chains:
            found = live.chain(chain.name)
            if found and found.hook != chain.hook:
                text = f"{chain.name} is '{found.hook}', not '{chain.hook}'"
                yield Check("hooks", FAIL, text, REPAIR)
        for other in live.others:
            text = f"the table has '{other}', which does not belong there"
            yield Check("hooks", FAIL, text, REPAIR)
    elif holder.kind == "nft":
        for hook in filter(_is_iptables, facts.nat_hooks or ()):
            if hook.dormant:
                text = f"table {hook.family} {hook.table} is dormant: nothing asks it"
                advice = f"wake it: nft 'add table {hook.family} {hook.table}'"
                yield Check("hooks", FAIL, text, advice)
            if hook.priority != PRIORITY:
                text = f"{hook} has priority {hook.priority}, not {PRIORITY}"
                advice = (
                    f"remove it (nft delete table {hook.family} nat), then {REPAIR}"
                )
                yield Check("hooks", FAIL, text, advice)


def _rivals(facts: Facts, holder: Holder) -> Iterator[Check]:
    """Other redirections at the same hooks.

    At equal priority the kernel asks first what was registered last, which can't be
    seen (contract, interception 3.2).
    """
    advice = "remove it, or move it into the backend that is in charge"
    for (kind, version), table in facts.survey.tables.items():
        if kind == holder.kind:
            continue
        for chain, rule in rivals(table):
            text = (
                f"{backend_name(kind)}, IPv{version}: {chain}: "
                f"'{spelled(rule, table)}' may take connections first"
            )
            yield Check("hooks", WARN, text, advice)
    hooks = [hook for hook in facts.nat_hooks or () if hook.of_others]
    if facts.rivals is None:
        text = f"{hooks[0]}: its rules can't be read" if hooks else "nft can't be asked"
        yield Check("hooks", WARN, text, "look at them: nft list ruleset")
    behind = {
        f"nftables: table {hook.family} {hook.table}"
        for hook in hooks
        if hook.priority > PRIORITY or hook.dormant
    }
    for where, text in facts.rivals or ():
        if where not in behind:
            told = f"{where}: {text} may take connections first"
            yield Check("hooks", WARN, told, advice)


def _is_iptables(hook: NatHook) -> bool:
    return hook.table == "nat" and not hook.of_others


def conntrack(facts: Facts) -> list[Check]:
    """The kernel can still note connections: what it can't note it can't redirect."""
    if facts.conntrack is None:
        return []
    count, limit = facts.conntrack
    text = f"{count} of {limit} connections"
    state = OK
    if limit and count >= limit:
        state, text = FAIL, f"full: {text}; new ones are dropped"
    elif limit and count >= NEARLY_FULL * limit:
        state, text = WARN, f"nearly full: {text}"
    advice = "" if state == OK else "raise net.netfilter.nf_conntrack_max on the node"
    return [Check("conntrack", state, text, advice)]
