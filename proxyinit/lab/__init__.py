"""A pod and a client on this machine: namespaces, stand-ins, and who answered.

What the demo shows, the kernel tests prove and the benchmarks load is the same
laboratory: two network namespaces joined by a veth pair, a stand-in for the
proxy and for the application in the pod, and a client that plays the rest of the
world. A connection is judged by who answered it and which original destination
the kernel kept, not by the text of any rule. Needs root, and the `netns` extra.
"""

from proxyinit.lab.namespace import Namespace, version_of
from proxyinit.lab.programs import Program
from proxyinit.lab.topology import CLIENT, POD, PROXY_UID, WORLD, Lab, Neighbour
from proxyinit.lab.traffic import (
    Answer,
    Load,
    StandIn,
    ask,
    load,
    original_destination,
)

__all__ = [
    "CLIENT",
    "POD",
    "PROXY_UID",
    "WORLD",
    "Answer",
    "Lab",
    "Load",
    "Namespace",
    "Neighbour",
    "Program",
    "StandIn",
    "ask",
    "load",
    "original_destination",
    "version_of",
]
