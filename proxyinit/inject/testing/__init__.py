"""Stand-ins to test against: a cluster that changes, and an API server that asks.

`Cluster` is an API server with namespaces and owners, with watches that end and
versions that are gone. `Caller` is the API server's other side: it sends reviews.
"""

from proxyinit.inject.testing.caller import Caller, Reply, pod, review, service
from proxyinit.inject.testing.cluster import Cluster

__all__ = ["Caller", "Cluster", "Reply", "pod", "review", "service"]
