#!python
"""The installed ``proxy-identity`` program."""

import sys

from identity.entry import main

status = main(sys.argv[1:])
sys.stdout.flush()
sys.exit(status)
