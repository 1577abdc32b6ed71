"""Matches on addresses beyond subnets: masks, ranges, what routing says. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from proxyinit.explain.option import Option, other
from proxyinit.explain.packet import bits, number, version_of
from proxyinit.explain.trace import Finding, Question
from proxyinit.explain.view import View, any_of, found, is_own, undecided
from proxyinit.rules import IPV6

_ALL_BITS = 0xFFFFFFFF
_LOOPBACK_BROADCAST = 0x7FFFFFFF


def masked(option: Option, view: View, side: str) -> Finding:
    """Whether one side's address fits ``address/mask``; the mask may be any bits."""
    packet = view.packet
    address = packet.source if side == "source" else packet.destination
    network, slash, mask_text = option.value.partition("/")
    if version_of(network) != packet.version:
        return Finding(holds=False, why=f"it is IPv{packet.version}")
    width = bits(packet.version)
    mask = (1 << width) - 1
    if slash and mask_text.isdigit():
        mask ^= mask >> int(mask_text)
    elif slash:
        mask = number(mask_text)
    inside = not (number(address) ^ number(network)) & mask
    word = "in" if inside else "not in"
    return found(inside, option.negated, f"{side} {address} is {word} {option.value}")


def iprange(option: Option, view: View) -> Finding:
    """The options of ``-m iprange``."""
    packet = view.packet
    if option.name not in ("--src-range", "--dst-range"):
        return other(option, view)
    address = packet.source if option.name == "--src-range" else packet.destination
    low, _, high = option.value.partition("-")
    if version_of(low) != packet.version:
        return Finding(holds=False, why=f"it is IPv{packet.version}")
    inside = number(low) <= number(address) <= number(high or low)
    word = "in" if inside else "not in"
    return found(inside, option.negated, f"{address} is {word} {option.value}")


def addrtype(option: Option, view: View) -> Finding:
    """The options of ``-m addrtype`` (net/netfilter/xt_addrtype.c)."""
    packet = view.packet
    if option.name not in ("--src-type", "--dst-type"):
        return other(option, view)  # --limit-iface-in: of that interface alone
    address = packet.source if option.name == "--src-type" else packet.destination
    kinds = option.value.split(",")
    if packet.version == IPV6:
        holds = _is_one_of6(kinds, address, view)
    else:
        holds = any_of(_is_type4(kind, address, view) for kind in kinds)
    if holds is not None:
        word = "is" if holds else "is not"
        return found(holds, option.negated, f"{address} {word} {option.value}")
    question: Question = (option.name[2:], option.value, address)
    why = f"whether {address} is {option.value} is not known"
    if "LOCAL" in kinds:
        why += ": say --own"
    if kinds == ["LOCAL"]:
        question = ("own", address)
    return undecided(view, question, why, negated=option.negated)


def _is_type4(kind: str, address: str, view: View) -> bool | None:
    """What the kernel's table of local addresses says, as far as it is known."""
    value = number(address)
    if value in (0, _ALL_BITS, _LOOPBACK_BROADCAST):
        return kind == "BROADCAST"
    if value >> 28 == 0xE:
        return kind == "MULTICAST"
    own = is_own(address, view)
    if kind == "LOCAL" or own:
        return own if kind == "LOCAL" else False
    if kind not in ("UNICAST", "BROADCAST"):
        return False if kind == "MULTICAST" else None
    if own is False and view.packet.outbound and view.packet.protocol == "tcp":
        return kind == "UNICAST"  # no connection is opened to a broadcast address
    return None


def _is_one_of6(kinds: Sequence[str], address: str, view: View) -> bool | None:
    """IPv6 asks for all of what an address shows, then for one of what routes say."""
    value = number(address)
    shown = {
        "MULTICAST": value >> 120 == 0xFF,
        "UNSPEC": value == 0,
        "UNICAST": value != 0 and value >> 120 != 0xFF and value >> 32 != 0xFFFF,
    }
    if not all(shown[kind] for kind in kinds if kind in shown):
        return False
    routes = [kind for kind in kinds if kind not in shown]
    own = is_own(address, view)
    return any_of(own if k == "LOCAL" else None for k in routes) if routes else True
