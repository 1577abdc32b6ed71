"""Standard input, output and error, as every program here wants to find them."""

from __future__ import annotations

import os


def open_all() -> None:
    """Fill the places of closed standard files, so that nothing else gets them."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
