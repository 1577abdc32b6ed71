"""Containers as a node's runtime makes them, for tests and benchmarks.

Kubernetes gives a container neither ambient nor inheritable capabilities; podman does.
What holds under podman may fail in a pod, so these containers are runc's own, from the
configuration that containerd and CRI-O write.
"""
