"""Whatever is done to a redirect, verify names it and proxy-init mends it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pytest

from proxyinit.config import RedirectConfig, parse_subnet
from proxyinit.lab import Namespace
from proxyinit.rules import PortRange
from proxyinit.verify import discover
from proxyinit.verify.checks import FAIL, WARN
from proxyinit.verify.node import Question, Report, examine
from proxyinit.verify.readback import Wanted

PROGRAM = str(Path(sys.executable).with_name("proxy-init"))
MODES = ("legacy", "nft", "nftables")
ARGUMENTS = (
    *("-p", "4143", "-o", "4140", "-u", "2102"),
    *("--inbound-ports-to-ignore", "4190", "--outbound-ports-to-ignore", "4567"),
    *("--outbound-subnets-to-ignore", "10.0.0.0/8,fd00::/8"),
)
WANTED = Wanted(
    RedirectConfig(
        4143,
        4140,
        (2102,),
        inbound_ports_to_ignore=(PortRange(4190, 4190),),
        outbound_ports_to_ignore=(PortRange(4567, 4567),),
        outbound_subnets_to_ignore=(
            parse_subnet("10.0.0.0/8"),
            parse_subnet("fd00::/8"),
        ),
    ),
    ipv6=True,
)
IN, OUT = "PROXY_INIT_REDIRECT", "PROXY_INIT_OUTPUT"
JUMP_IN = "proxy-init/install-proxy-init-prerouting"
USER = "proxy-init/ignore-proxy-user-id"
REDIRECT_IN = "proxy-init/redirect-all-incoming-to-proxy-port"


@dataclass(frozen=True)
class Text:
    """A rule in the language of iptables, and of nft."""

    iptables: str
    nft: str

    def __add__(self, comment: str) -> Text:
        """The same with a comment, before the verdict as iptables prints it."""
        matches, verdict = re.split(r"(?=-[jg] )", self.iptables)
        return Text(
            f'{matches}-m comment --comment "{comment}" {verdict}',
            f'{self.nft} comment "{comment}"',
        )


ACCEPT = Text("-p tcp -j ACCEPT", "meta l4proto tcp accept")
RETURN = Text("-j RETURN", "return")
TO_IN = Text(f"-j {IN}", f"jump {IN}")
USER_2102 = Text("-m owner --uid-owner 2102 -j RETURN", "meta skuid 2102 return")


def redirect(port: str, *, where: Text = Text("-p tcp", "meta l4proto tcp")) -> Text:
    """A rule that redirects TCP."""
    return Text(
        f"{where.iptables} -j REDIRECT --to-ports {port}",
        f"{where.nft} redirect to :{port}",
    )


class Saboteur:
    """Changes rules with the tools of the machine, in both families or in one."""

    def __init__(self, namespace: Namespace, mode: str) -> None:
        self.namespace = namespace
        self.mode = mode
        self.native = mode == "nftables"

    def sh(self, script: str) -> str:
        done = self.namespace.exec(["sh", "-ec", script])
        assert done.returncode == 0, f"{script}: {done.stderr}"
        return done.stdout

    def iptables(self, command: str, *versions: int, mode: str = "") -> None:
        for version in versions or (4, 6):
            name = f"ip{'6' if version == 6 else ''}tables-{mode or self.mode}"
            self.sh(f"{name} -t nat {command}")

    def nft(self, command: str) -> str:
        return self.sh(f"nft -a '{command}'")

    def _handle(self, chain: str, number: int) -> str:
        listed = self.nft(f"list chain inet proxy_init {chain}")
        rules = re.findall(r"^\t\t(?!type ).*# handle (\d+)$", listed, re.MULTILINE)
        return str(rules[number - 1])

    def delete(self, chain: str, number: int, *versions: int) -> None:
        if self.native:
            handle = self._handle(chain, number)
            self.nft(f"delete rule inet proxy_init {chain} handle {handle}")
        else:
            self.iptables(f"-D {chain} {number}", *versions)

    def insert(self, chain: str, rule: Text, *versions: int) -> None:
        if self.native:
            self.nft(f"insert rule inet proxy_init {chain} {rule.nft}")
        else:
            self.iptables(f"-I {chain} {rule.iptables}", *versions)

    def append(self, chain: str, rule: Text, *versions: int) -> None:
        if self.native:
            self.nft(f"add rule inet proxy_init {chain} {rule.nft}")
        else:
            self.iptables(f"-A {chain} {rule.iptables}", *versions)

    def replace(self, chain: str, number: int, rule: Text, *versions: int) -> None:
        if self.native:
            handle = self._handle(chain, number)
            self.nft(f"replace rule inet proxy_init {chain} handle {handle} {rule.nft}")
        else:
            self.iptables(f"-R {chain} {number} {rule.iptables}", *versions)

    def chain(self, name: str, rule: Text) -> None:
        """Make a chain of somebody else's, of one rule."""
        if self.native:
            self.nft(f"add chain inet proxy_init {name}")
        else:
            self.iptables(f"-N {name}")
        self.append(name, rule)

    def flush(self, chain: str) -> None:
        if self.native:
            self.nft(f"flush chain inet proxy_init {chain}")
        else:
            self.iptables(f"-F {chain}")

    def remove(self, chain: str) -> None:
        self.flush(chain)
        if self.native:
            self.nft(f"delete chain inet proxy_init {chain}")
        else:
            self.iptables(f"-X {chain}")


def moved_to_the_end(who: Saboteur, number: int, rule: Text) -> None:
    who.delete(OUT, number)
    who.append(OUT, rule)


def in_the_wrong_chain(who: Saboteur) -> None:
    who.delete("PREROUTING", 1)
    who.insert("OUTPUT", TO_IN + JUMP_IN)


def gone_with_its_jump(who: Saboteur) -> None:
    who.delete("PREROUTING", 1)
    who.remove(IN)


def renamed(who: Saboteur) -> None:
    if who.native:
        who.nft(f"rename chain inet proxy_init {OUT} OLD")
    else:
        who.iptables(f"-E {OUT} OLD")


def led_astray(who: Saboteur, how: str) -> None:
    """Put another program's chain, which takes everything, in front of our jump."""
    who.chain("FOREIGN", ACCEPT)
    word = "goto" if how == "-g" else "jump"
    who.insert(
        "OUTPUT", Text(f"-p tcp {how} FOREIGN", f"meta l4proto tcp {word} FOREIGN")
    )


def partly_taken(who: Saboteur) -> None:
    who.chain("FOREIGN", Text("-p tcp --dport 80 -j ACCEPT", "tcp dport 80 accept"))
    who.insert("OUTPUT", Text("-j FOREIGN", "jump FOREIGN"))


def besides(who: Saboteur) -> None:
    """Copy upstream's rules into another backend."""
    other = "legacy" if who.mode != "legacy" else "nft"
    for chain, builtin in ((IN, "PREROUTING"), (OUT, "OUTPUT")):
        who.iptables(f"-N {chain}", mode=other)
        who.iptables(f"-A {builtin} -j {chain}", mode=other)


def left_over(who: Saboteur) -> None:
    who.iptables(f"-N {OUT}", mode="legacy" if who.mode != "legacy" else "nft")


def family_left_out(who: Saboteur) -> None:
    if who.native:
        for chain in ("PREROUTING", "OUTPUT"):
            who.insert(chain, Text("", "meta nfproto ipv6 return"))
    else:
        for chain, builtin in ((IN, "PREROUTING"), (OUT, "OUTPUT")):
            who.iptables(f"-D {builtin} 1", 6)
            who.iptables(f"-F {chain}", 6)
            who.iptables(f"-X {chain}", 6)


def policy_drop(who: Saboteur) -> None:
    if who.native:
        who.nft("chain inet proxy_init OUTPUT { policy drop; }")
    else:
        who.nft("chain ip nat OUTPUT { policy drop; }")


def all_flushed(who: Saboteur) -> None:
    if who.native:
        who.nft("flush table inet proxy_init")
    else:
        who.iptables("-F")


def all_deleted(who: Saboteur) -> None:
    if who.native:
        who.nft("delete table inet proxy_init")
    else:
        who.iptables("-F")
        who.iptables("-X")


def asleep(who: Saboteur) -> None:
    table = "inet proxy_init" if who.native else "ip nat"
    who.nft(f"add table {table} {{ flags dormant; }}")


def asked_late(who: Saboteur) -> None:
    """Make a table anew with the same rules at another priority of one hook."""
    table = "inet proxy_init" if who.native else "ip nat"
    dump = who.sh(f"nft -nn list table {table}")
    late = re.sub(r"(hook output priority )[-\w]+", r"\1-50", dump)
    who.nft(f"delete table {table}")
    done = who.namespace.exec(["nft", "-f", "-"], text=late)
    assert done.returncode == 0, done.stderr


def asked_before(who: Saboteur) -> None:
    """Another program's native table, whose nat is asked before everybody else's."""
    who.nft("add table ip early")
    hook = "type nat hook output priority -150;"
    who.nft(f"add chain ip early out {{ {hook} }}")
    who.nft("add rule ip early out tcp dport 80 redirect to :9")


@dataclass(frozen=True)
class Damage:
    """What is done, and what verify says of it: the check, and a part of the cause.

    With `blind` it can't be seen without the flags that are wanted: the rules make
    sense, if another one. `mended` says whether a re-run puts it right: in every
    mode, in the native one alone (where the whole table is ours), or in none
    because it is not ours to change. What then is still there is `left`, and the
    re-run says so.
    """

    name: str
    do: Callable[[Saboteur], object]
    check: str
    cause: str
    native_cause: str = ""
    state: str = FAIL
    blind: bool = False
    mended: tuple[str, ...] = MODES
    modes: tuple[str, ...] = MODES
    left: str = ""


LO = Text("-o lo -j RETURN", 'oifname "lo" return')
DAMAGES = (
    Damage(
        "the inbound jump is deleted",
        lambda who: who.delete("PREROUTING", 1),
        "jumps",
        "the jump of PREROUTING, .* is missing",
    ),
    Damage(
        "the outbound jump is deleted",
        lambda who: who.delete("OUTPUT", 1),
        "jumps",
        "the jump of OUTPUT, .* is missing",
    ),
    Damage(
        "the inbound jump of IPv6 is deleted",
        lambda who: who.delete("PREROUTING", 1, 6),
        "jumps",
        "IPv6: the jump of PREROUTING, .* is missing",
        "the jump of PREROUTING, .* is missing",
    ),
    Damage(
        "a jump is doubled",
        lambda who: who.append("PREROUTING", TO_IN + JUMP_IN),
        "jumps",
        "the jump of PREROUTING stands there 2 times",
    ),
    Damage(
        "a jump stands behind an ACCEPT",
        lambda who: who.insert("OUTPUT", ACCEPT),
        "reachable",
        "rule 1 of OUTPUT, .*, stands in front of the jump",
        mended=("nftables",),
    ),
    Damage(
        "a jump is in the wrong chain",
        in_the_wrong_chain,
        "jumps",
        f"OUTPUT has the jump .*{IN}.* does not belong",
    ),
    Damage(
        "a jump is for one interface only",
        lambda who: who.replace(
            "PREROUTING",
            1,
            Text(f"-i eth9 -j {IN}", f"iifname eth9 jump {IN}") + JUMP_IN,
        ),
        "jumps",
        "the jump of PREROUTING, .*eth9.* is for some connections only",
    ),
    Damage(
        "a jump became a goto",
        lambda who: who.replace(
            "PREROUTING", 1, Text(f"-g {IN}", f"goto {IN}") + JUMP_IN
        ),
        "jumps",
        "the jump of PREROUTING, .* is a goto",
    ),
    Damage(
        "a jump has another comment",
        lambda who: who.replace("PREROUTING", 1, TO_IN + "mine"),
        "jumps",
        "the jump of PREROUTING, .*mine.* has another comment",
    ),
    Damage(
        "the inbound chain is emptied",
        lambda who: who.flush(IN),
        "rules",
        f"{IN}: (it is empty|rule 1, .* is missing)",
    ),
    Damage(
        "the outbound chain is emptied",
        lambda who: who.flush(OUT),
        "rules",
        f"{OUT}: (it is empty|rule 1, .* is missing)",
    ),
    Damage(
        "an ignored port is lost",
        lambda who: who.delete(IN, 1),
        "rules",
        f"{IN}: rule 1, .*4190.* is missing",
        blind=True,
    ),
    Damage(
        "loopback is not left alone",
        lambda who: who.delete(OUT, 2),
        "rules",
        f"{OUT}: rule 2, .*lo.* is missing",
    ),
    Damage(
        "an ignored subnet is lost",
        lambda who: who.delete(OUT, 4),
        "rules",
        f"{OUT}: rule 4, .*10.0.0.0/8.* is missing",
        blind=True,
    ),
    Damage(
        "nothing is redirected outbound",
        lambda who: who.delete(OUT, 6 if who.native else 5),
        "rules",
        f"{OUT}: (none of its rules redirects|rule [56], .*4140.* is missing)",
    ),
    Damage(
        "rules stand in another order",
        lambda who: moved_to_the_end(who, 2, LO + "proxy-init/ignore-loopback"),
        "rules",
        f"{OUT}: rule [56], .*lo.* stands there instead of at 2",
    ),
    Damage(
        "the inbound port is another",
        lambda who: who.replace(IN, 2, redirect("4144") + REDIRECT_IN),
        "rules",
        f"{IN}: rule 2, .*4144.* is not .*4143",
        blind=True,
    ),
    Damage(
        "the ports are a range",
        lambda who: who.replace(IN, 2, redirect("4143-4150") + REDIRECT_IN),
        "rules",
        f"{IN}: (none of its rules redirects|rule 2, .*4143-4150.* is not)",
    ),
    Damage(
        "the redirect is for one interface only",
        lambda who: who.replace(
            IN,
            2,
            redirect(
                "4143", where=Text("-i eth9 -p tcp", "iifname eth9 meta l4proto tcp")
            )
            + REDIRECT_IN,
        ),
        "rules",
        f"{IN}: ('.*eth9.*' is for some connections only|rule 2, .*eth9.* is not)",
    ),
    Damage(
        "the redirect became a log line",
        lambda who: who.replace(IN, 2, Text("-p tcp -j LOG", "meta l4proto tcp log")),
        "rules",
        f"{IN}: (none of its rules redirects|rule 2, .* is not)",
    ),
    Damage(
        "the proxy's user is not let pass",
        lambda who: who.delete(OUT, 1),
        "owner bypass",
        "no rule lets the proxy's own connections pass: .* a loop",
    ),
    Damage(
        "the proxy's user is let pass too late",
        lambda who: moved_to_the_end(who, 1, USER_2102 + USER),
        "owner bypass",
        f"rule [56] of {OUT}, .* stands behind the redirect: a loop",
    ),
    Damage(
        "another user is let pass",
        lambda who: who.replace(
            OUT,
            1,
            Text("-m owner --uid-owner 2103 -j RETURN", "meta skuid 2103 return")
            + USER,
        ),
        "rules",
        f"{OUT}: rule 1, .*2103.* is not .*2102",
        blind=True,
    ),
    Damage(
        "all but the proxy's user is let pass",
        lambda who: who.replace(
            OUT,
            1,
            Text("-m owner ! --uid-owner 2102 -j RETURN", "meta skuid != 2102 return")
            + USER,
        ),
        "owner bypass",
        "no rule lets the proxy's own connections pass",
    ),
    Damage(
        "everything returns at once",
        lambda who: who.insert(IN, RETURN),
        "rules",
        f"{IN}: rule 1, '(-j RETURN|.*return)', does not belong there",
    ),
    Damage(
        "a rule of ours is doubled",
        lambda who: who.insert(OUT, USER_2102 + USER),
        "rules",
        f"{OUT}: rule [12], .*2102.* does not belong there",
        blind=True,
    ),
    Damage(
        "a rule is without its comment",
        lambda who: who.replace(OUT, 2, LO),
        "rules",
        f"{OUT}: rule 2, .* has another comment than",
    ),
    Damage(
        "a rule of others is in our chain",
        lambda who: who.append(IN, Text("-p udp -j ACCEPT", "meta l4proto udp accept")),
        "rules",
        f"{IN}: rule 3, .*udp.* does not belong there",
    ),
    Damage(
        "another's chain takes all by a jump",
        lambda who: led_astray(who, "-j"),
        "reachable",
        "rule 1 of OUTPUT, .*FOREIGN.* stands in front",
        mended=("nftables",),
    ),
    Damage(
        "another's chain takes all by a goto",
        lambda who: led_astray(who, "-g"),
        "reachable",
        "rule 1 of OUTPUT, .*FOREIGN.* stands in front",
        mended=("nftables",),
    ),
    Damage(
        "another's chain takes some",
        partly_taken,
        "reachable",
        "rule 1 of OUTPUT, .*FOREIGN.* stands in front",
        state=WARN,
        mended=(),
        modes=("legacy", "nft"),
    ),
    Damage(
        "another's chain is in our table",
        partly_taken,
        "rules",
        "chain FOREIGN does not belong in our table",
        modes=("nftables",),
    ),
    Damage(
        "another backend redirects as well",
        besides,
        "backend",
        "redirects besides .*: two backends are in charge",
    ),
    Damage(
        "another backend has a chain of ours",
        left_over,
        "backend",
        "holds chains of an earlier run, to which nothing leads",
        state=WARN,
    ),
    Damage(
        "IPv6 is left out",
        family_left_out,
        "chains",
        f"IPv6: chain {IN} is missing",
        blind=True,
        modes=("legacy", "nft"),
    ),
    Damage(
        "IPv6 returns from our table",
        family_left_out,
        "reachable",
        "rule 1 of PREROUTING, .*ipv6.* return', stands in front of the jump",
        modes=("nftables",),
    ),
    Damage(
        "IPv6 ignores other ports",
        lambda who: who.insert(
            IN,
            Text("-p tcp -m multiport --dports 99 -j RETURN", "tcp dport 99 return")
            + "proxy-init/ignore-port-99",
            6,
        ),
        "rules",
        f"{IN}: rule 1, .*99.* (does not belong there|is not)",
        blind=True,
    ),
    Damage(
        "the policy drops what is not redirected",
        policy_drop,
        "reachable",
        "the policy of OUTPUT is DROP",
        mended=("nftables",),
        modes=("nft", "nftables"),  # iptables-legacy does not take it
    ),
    Damage(
        "a chain is gone with its jump",
        gone_with_its_jump,
        "chains",
        f"chain {IN} is missing",
    ),
    Damage(
        "a chain is renamed",
        renamed,
        "chains",
        f"chain {OUT} is missing",
        modes=("nftables",),
    ),
    Damage(
        "a chain is renamed, and takes all by its old jump",
        renamed,
        "chains",
        f"chain {OUT} is missing",
        mended=(),
        modes=("legacy", "nft"),
        left="rule 1 of OUTPUT, .* -j OLD', stands in front of the jump",
    ),
    Damage(
        "the table sleeps",
        asleep,
        "hooks",
        "table ip6? nat is dormant",
        "the table has 'flags dormant'",
        mended=("nftables",),
        modes=("nft", "nftables"),
    ),
    Damage(
        "the table is asked at another priority",
        asked_late,
        "hooks",
        "table ip nat, chain OUTPUT has priority -50, not -100",
        "OUTPUT is '.* priority -50', not '.* priority -100'",
        mended=("nftables",),
        modes=("nft", "nftables"),
    ),
    Damage(
        "a set of others is in our table",
        lambda who: who.nft("add set inet proxy_init names { type inet_service; }"),
        "hooks",
        "the table has 'set names",
        modes=("nftables",),
    ),
    Damage("all chains are flushed", all_flushed, "jumps", "the jump of .* is missing"),
    Damage("the tables are emptied", all_deleted, "backend", "nothing is redirected"),
    Damage(
        "another nat is asked before",
        asked_before,
        "hooks",
        "nftables: table ip early: out: .* may take connections first",
        state=WARN,
        mended=(),
    ),
)


@pytest.fixture(scope="module")
def worker() -> Iterator[ProcessPoolExecutor]:
    """A process that examines namespaces from inside, as those of `verify --all`."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        yield pool


def install(namespace: Namespace, mode: str) -> tuple[int, str]:
    done = namespace.exec([PROGRAM, *ARGUMENTS, "--iptables-mode", mode])
    return done.returncode, done.stderr


def look(
    worker: ProcessPoolExecutor, namespace: Namespace, given: Wanted | None
) -> Report:
    target = discover.target(namespace.path)
    report = worker.submit(examine, Question(given=given), target).result()
    assert report
    return report


def named(report: Report, damage: Damage, mode: str) -> bool:
    native = damage.native_cause if mode == "nftables" else ""
    return any(
        (check.name, check.state) == (damage.check, damage.state)
        and re.search(native or damage.cause, check.found)
        and check.advice
        for check in report.judgement.checks
    )


def faults(report: Report) -> list[str]:
    return [
        f"{check.state} {check.name}: {check.found}"
        for check in report.faults
        if not check.name.endswith("proxy")  # none runs here
    ]


@pytest.mark.parametrize(
    ("mode", "damage"),
    [
        pytest.param(mode, damage, id=f"{mode}: {damage.name}")
        for damage in DAMAGES
        for mode in damage.modes
    ],
)
def test_damage_is_named_and_mended(
    namespace: Namespace, worker: ProcessPoolExecutor, mode: str, damage: Damage
) -> None:
    """Verify says what is wrong; proxy-init mends it, or leaves what is not its own."""
    code, said = install(namespace, mode)
    assert code == 0, said
    assert faults(look(worker, namespace, WANTED)) == []
    assert faults(look(worker, namespace, None)) == []

    damage.do(Saboteur(namespace, mode))

    for given in (WANTED,) if damage.blind else (WANTED, None):
        report = look(worker, namespace, given)
        assert named(report, damage, mode), faults(report)
        assert report.verdict == ("differs" if damage.state == FAIL else "intercepted")
    code, said = install(namespace, mode)
    after = look(worker, namespace, WANTED)
    if mode in damage.mended:
        assert code == 0, said
        assert faults(after) == []
    else:
        assert code == 1 or "level=warning" in said
        assert any(
            re.search(damage.left or damage.cause, fault) for fault in faults(after)
        )
