"""Print what pyproject.toml asks for: ``requirements.py [EXTRA...]``."""
# ruff: noqa: INP001  (a folder of images, no package of ours)

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
wanted = list(project["dependencies"])
for extra in sys.argv[1:]:
    wanted += project["optional-dependencies"][extra]
print(*wanted, sep="\n")  # noqa: T201  (its output is the result)
