"""Stand-ins to test against, made for everybody: they behave, and misbehave.

`CA` certifies anything, also what has expired or names somebody else.
"""

from identity.testing.authority import CA, Leaf, csr_der, new_key, whole_second

__all__ = ["CA", "Leaf", "csr_der", "new_key", "whole_second"]
