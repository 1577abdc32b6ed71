"""``python -m identity`` is ``proxy-identity``."""

import sys

from identity.entry import main

sys.exit(main(sys.argv[1:]))
