"""The service that certifies: a token proves a name, a CSR brings the key."""
