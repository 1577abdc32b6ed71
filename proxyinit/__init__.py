"""Interception: a pod's traffic diverted to its sidecar proxy, and proved.

The way through the package::

    flags -> RedirectConfig -> plan() -> Ruleset --+
                          live Ruleset <- read() --+-> reconcile -> Transaction
                          -> apply -> read -> verify

This module imports nothing: it is on the start-up path of every pod.
"""

__version__ = "0.1.0"
