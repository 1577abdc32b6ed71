"""Into every pod: the init container and the sidecar, written into its spec."""
