"""What can be done to a redirect, and what verify has to say of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from saboteur import ACCEPT, IN, OUT, RETURN, TO_IN, USER_2102, Saboteur, Text, redirect

from proxyinit.verify.checks import FAIL, WARN

MODES = ("legacy", "nft", "nftables")
JUMP_IN = "proxy-init/install-proxy-init-prerouting"
USER = "proxy-init/ignore-proxy-user-id"
REDIRECT_IN = "proxy-init/redirect-all-incoming-to-proxy-port"


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
