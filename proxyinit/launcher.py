#!python
"""The installed ``proxy-init`` program."""

import os
import sys

from proxyinit.entry import main

status = main(sys.argv[1:])
sys.stdout.flush()
# Nothing is left to clean up; taking the interpreter apart would cost 1 ms.
os._exit(status)
