"""``proxy-init verify`` and ``watch``: is a namespace intercepted, how is it known?

The way through the package::

    discover       which namespaces there are, and whose
    facts          what is known of one, gathered by sockets, proxyinit.survey, probe
    readback       from live rules to the flags that made them
    deviation      how rules deviate from those wanted
    sense          whether rules make sense; surroundings: what rules alone do not tell
    checks         one question and its answer
    verdict, node  one namespace judged; all of a node, by several workers
    report         for people and programs; exposition: as metrics
    cli, watch_cli the commands
"""
