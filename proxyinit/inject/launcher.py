#!python
"""The installed ``proxy-injector`` program."""

import sys

from proxyinit.inject.cli import main

if __name__ == "__main__":  # a worker that is spawned imports this file again
    status = main(sys.argv[1:])
    if sys.stdout:  # None when it was closed from the start
        sys.stdout.flush()
    sys.exit(status)
