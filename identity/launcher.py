#!python
"""The installed ``proxy-identity`` program."""

import sys

if __name__ == "__main__":  # a worker that is spawned imports this file again
    import gc

    gc.disable()  # a bootstrap leaves nothing behind; `main` decides for the rest

    from identity.entry import main

    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.exit(status)
