"""``python -m proxyinit`` is ``proxy-init``."""

import sys

from proxyinit.entry import main

sys.exit(main(sys.argv[1:]))
