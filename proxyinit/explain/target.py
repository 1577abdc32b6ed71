"""What targets do to a packet in the hooks where destinations are rewritten. Pure."""

from __future__ import annotations

from proxyinit.explain.packet import Mark, bits, canonical, number, read_mark
from proxyinit.explain.trace import Outcome
from proxyinit.explain.view import View
from proxyinit.rules import IPV6, Rule, Verdict

PASSING = frozenset(
    (
        *("LOG", "NFLOG", "ULOG", "TRACE", "AUDIT", "LED", "RATEEST", "IDLETIMER"),
        *("MARK", "CONNMARK", "SECMARK", "CONNSECMARK", "CLASSIFY", "CHECKSUM"),
        *("DSCP", "TOS", "TTL", "HL", "TCPMSS", "SET", "TEE"),
    )
)
"""Targets after which a packet goes on to the next rule."""


def lets_pass(verdict: Verdict, view: View) -> bool:
    """Whether the packet goes on to the next rule after a target.

    In a table of both versions it does after ``dnat`` to an address of the other one
    (nft_nat_inet_eval).
    """
    if verdict.target == "DNAT" and view.native:
        target = " ".join(verdict.args)
        return (target.count(":") > 1) != (view.packet.version == IPV6)
    return verdict.target in PASSING


_MISPLACED = "the kernel takes no {} here, it belongs to {}"
_NEVER_HERE = {
    **{n: _MISPLACED.format(n, "POSTROUTING") for n in ("SNAT", "MASQUERADE")},
    **{n: _MISPLACED.format(n, "mangle or raw") for n in ("TPROXY", "CT", "NOTRACK")},
    "REJECT": _MISPLACED.format("REJECT", "the filter table"),
    **{n: f"{n} leaves it to another program" for n in ("QUEUE", "NFQUEUE")},
}


def ends_with(
    rule: Rule, verdict: Verdict, view: View, where: Outcome
) -> Outcome | None:
    """The outcome of a target that ends the way; `where` names the rule.

    None for targets that nobody knows: they may end it or let it go on.
    """
    name = verdict.target
    if name == "ACCEPT":
        return _outcome("untouched", where, why=rule.reason or name)
    if name == "DROP":
        return _outcome("dropped", where, why=rule.reason)
    rewrite = _REWRITES.get(name)
    if rewrite:
        try:
            return rewrite(verdict.args, view, where, rule.reason)
        except (ValueError, IndexError):
            shown = " ".join((name, *verdict.args))[:80]
            return unknown(where, f"what '{shown}' does can't be told")
    why = _NEVER_HERE.get(name)
    return unknown(where, why) if why else None


def unknown(where: Outcome, why: str) -> Outcome:
    """The outcome that nobody knows."""
    return _outcome("unknown", where, why=why)


def _outcome(
    kind: str,
    where: Outcome,
    *,
    address: str = "",
    ports: tuple[int, int] | None = None,
    why: str = "",
) -> Outcome:
    return Outcome(
        kind=kind,  # type: ignore[arg-type]  # a word of the Literal, from above
        address=address,
        ports=ports,
        chain=where.chain,
        number=where.number,
        why=why,
    )


def _redirect(args: tuple[str, ...], view: View, where: Outcome, why: str) -> Outcome:
    """To this namespace: loopback for packets made here (nf_nat_redirect.c)."""
    packet = view.packet
    address = ""
    if packet.outbound:
        address = "::1" if packet.version == IPV6 else "127.0.0.1"
    ports = _port_span(_after(args, "--to-ports")) if "--to-ports" in args else None
    return _outcome("redirected", where, address=address, ports=ports, why=why)


def _dnat(
    args: tuple[str, ...],
    view: View,  # noqa: ARG001  (as its likes)
    where: Outcome,
    why: str,
) -> Outcome:
    """To ``address[-address][:port[-port]]``, IPv6 addresses with ports in brackets."""
    text = _after(args, "--to-destination")
    if text.startswith("["):
        address, _, ports = text[1:].partition("]")
        ports = ports.removeprefix(":")
    elif text.count(":") > 1:
        address, ports = text, ""
    else:
        address, _, ports = text.partition(":")
    first, dash, last = address.partition("-")
    shown = canonical(first) if first else ""
    if dash and canonical(last) != shown:
        return unknown(where, f"which address of {address} it gets is not known")
    if "/" in ports:
        return unknown(where, f"ports are shifted: {text}")
    span = _port_span(ports) if ports else None
    return _outcome("translated", where, address=shown, ports=span, why=why)


def _netmap(args: tuple[str, ...], view: View, where: Outcome, why: str) -> Outcome:
    """The network of the destination is another one, the host the same."""
    network, _, prefix = _after(args, "--to").partition("/")
    width = bits(view.packet.version)
    if not prefix.isdigit() or int(prefix) > width:
        raise ValueError(prefix)
    host = (1 << (width - int(prefix))) - 1
    value = number(network) & ~host | number(view.packet.destination) & host
    return _outcome("translated", where, address=_spelled(value, width), why=why)


_REWRITES = {"REDIRECT": _redirect, "DNAT": _dnat, "NETMAP": _netmap}


def _spelled(value: int, width: int) -> str:
    data = value.to_bytes(width // 8, "big")
    if width == 32:
        return ".".join(map(str, data))
    return canonical(":".join(data[at : at + 2].hex() for at in range(0, 16, 2)))


def _port_span(text: str) -> tuple[int, int]:
    low, dash, high = text.partition("-")
    return int(low), int(high) if dash else int(low)


def _after(args: tuple[str, ...], option: str) -> str:
    """The word after an option; `ValueError` or `IndexError` when it is not there."""
    return args[args.index(option) + 1]


# === marks ===


def remark(verdict: Verdict, view: View) -> None:
    """Set the marks as MARK and CONNMARK do; unknown when they can't be read.

    After SET a set may hold what was supposed not to be in it.
    """
    if verdict.target == "SET":
        view.supposed = {q: a for q, a in view.supposed.items() if q[0] != "set"}
    try:
        if verdict.target == "MARK":
            view.mark = _changed(view.mark, verdict.args)
        elif verdict.target == "CONNMARK":
            _connmark(view, verdict.args)
    except (ValueError, IndexError):
        view.mark = view.connmark = Mark()


def _changed(mark: Mark, args: tuple[str, ...]) -> Mark:
    value, mask = read_mark(args[1])
    words = {
        "--set-xmark": (value, mask),
        "--set-mark": (value, value | mask),
        "--and-mark": (0, ~value & 0xFFFFFFFF),
        "--or-mark": (value, value),
        "--xor-mark": (value, 0),
    }
    if args[0] not in words:
        raise ValueError(args[0])
    return mark.changed(*words[args[0]])


def _connmark(view: View, args: tuple[str, ...]) -> None:
    if args[0] == "--save-mark":
        view.connmark = _masked_copy(view.connmark, view.mark, args, "--ctmask")
    elif args[0] == "--restore-mark":
        view.mark = _masked_copy(view.mark, view.connmark, args, "--nfmask")
    else:
        view.connmark = _changed(view.connmark, args)


def _masked_copy(to: Mark, origin: Mark, args: tuple[str, ...], clear: str) -> Mark:
    """``to = (to & ~clear) ^ (origin & other)``, for equal masks."""
    masks = {int(_after(args, name), 0) for name in ("--nfmask", "--ctmask")}
    if len(masks) > 1:
        raise ValueError(clear)
    mask = masks.pop()
    known = (to.known & ~mask) | (origin.known & mask)
    return Mark((to.value & ~mask | origin.value & mask) & known, known)
