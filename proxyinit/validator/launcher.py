#!python
"""The installed ``network-validator`` program."""

import os
import sys

from proxyinit.validator.entry import main

status = main(sys.argv[1:])
try:
    for stream in (sys.stdout, sys.stderr):
        if stream:  # None when it was closed from the start
            stream.flush()
except OSError:
    status = status or 1
# Nothing is left to clean up; taking the interpreter apart would cost 1 ms.
os._exit(status)
