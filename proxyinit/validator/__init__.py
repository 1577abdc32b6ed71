"""The program ``network-validator``: proof by a connection that a pod is intercepted.

It listens where the proxy will, connects to an address that nobody has, and wants
its own random token back. Drop-in for Linkerd's container of that name, which runs
in every pod of a cluster with the CNI plugin, without any privilege.

::

    flags -> Settings -> validate: attempt -> Outcome -> explain -> Finding -> log, 95
"""
