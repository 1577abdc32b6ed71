"""Identity: a workload's key, its certificate, and the service that certifies."""
