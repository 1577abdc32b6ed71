"""``python -m proxyinit.validator``: the program without its installed name."""

import proxyinit.validator.launcher  # noqa: F401  (it runs on import)
