"""Any configuration, in any of its spellings, is read back as it was."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proxyinit import options
from proxyinit.config import MAX_ID, RedirectConfig, parse_subnet
from proxyinit.flags import INSTALL_FLAGS
from proxyinit.pflag import parse
from proxyinit.rules import PortRange

ports = st.integers(1, 65535)
ranges = st.tuples(ports, ports).map(lambda pair: PortRange(*sorted(pair)))
ids = st.integers(0, MAX_ID)
networks4 = st.ip_addresses(v=4)
networks6 = st.ip_addresses(v=6)
subnets = st.one_of(
    st.tuples(networks4, st.integers(0, 32)),
    st.tuples(networks6, st.integers(0, 128)),
).map(lambda pair: parse_subnet(f"{pair[0]}/{pair[1]}"))


@st.composite
def configs(draw: st.DrawFn) -> RedirectConfig:
    """Any valid configuration."""

    def several(items: st.SearchStrategy[object]) -> tuple[object, ...]:
        return tuple(draw(st.lists(items, max_size=4)))

    inbound, outbound = draw(st.lists(ports, min_size=2, max_size=2, unique=True))
    return RedirectConfig(
        inbound,
        outbound,
        *map(several, (ids, ids, ports, ranges, ranges, subnets, subnets)),  # type: ignore[arg-type]
    )


@st.composite
def command_lines(draw: st.DrawFn, config: RedirectConfig) -> list[str]:
    """One of the many ways to say a configuration."""

    def spell(name: str, text: str) -> list[str]:
        spellings = [[f"--{name}", text], [f"--{name}={text}"]]
        if short := flags[name].short:
            spellings += [
                [f"-{short}", text],
                [f"-{short}{text}"],
                [f"-{short}={text}"],
            ]
            spellings += [[f"-w{short}", text], [f"-w{short}{text}"]]
        return draw(st.sampled_from(spellings))

    flags = {flag.name: flag for flag in INSTALL_FLAGS}
    said: list[tuple[str, list[str]]] = []
    inbound = "inbound-subnets-to-ignore"
    for name, items in (
        ("incoming-proxy-port", (config.inbound_port,)),
        ("outgoing-proxy-port", (config.outbound_port,)),
        ("proxy-uid", config.proxy_uids),
        ("proxy-gid", config.proxy_gids),
        ("ports-to-redirect", config.ports_to_redirect),
        ("inbound-ports-to-ignore", config.inbound_ports_to_ignore),
        ("outbound-ports-to-ignore", config.outbound_ports_to_ignore),
        (
            draw(st.sampled_from(["subnets-to-ignore", inbound])),
            config.inbound_subnets_to_ignore,
        ),
        ("outbound-subnets-to-ignore", config.outbound_subnets_to_ignore),
    ):
        texts = [str(item).replace(":", "-") for item in items]
        if "subnets" in name:
            texts = list(map(str, items))
        cut = draw(st.integers(0, len(texts)))
        blank = draw(st.sampled_from(["", " "]))
        said += [
            (name, spell(name, f",{blank}".join(part)))
            for part in (texts[:cut], texts[cut:])
            if part
        ]
    # The order of one flag's own occurrences matters, all other order does not.
    turns = draw(st.permutations([name for name, _ in said]))
    rest = {name: [w for n, w in said if n == name] for name in turns}
    return [word for name in turns for word in rest[name].pop(0)]


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_every_spelling_says_the_same(data: st.DataObject) -> None:
    """A configuration, said in any of the spellings, is read back as it was."""
    wanted = data.draw(configs())
    argv = data.draw(command_lines(wanted))

    arguments = parse(argv, INSTALL_FLAGS)

    assert arguments.problems == ()
    assert arguments.words == ()
    assert list(options.problems(arguments)) == []
    assert options.redirect_config(arguments) == wanted
