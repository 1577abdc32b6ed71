#!python
"""The installed ``proxy-injector`` program."""

import sys

from proxyinit.inject.cli import main

if __name__ == "__main__":  # a worker that is spawned imports this file again
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.exit(status)
