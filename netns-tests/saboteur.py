"""Rules in the language of either tool, and somebody who changes them by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass

from proxyinit.lab import Namespace

IN, OUT = "PROXY_INIT_REDIRECT", "PROXY_INIT_OUTPUT"


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
