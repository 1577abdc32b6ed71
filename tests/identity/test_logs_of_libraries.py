"""What libraries log comes out in our form, with its reason."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import logging
from identity import logs

logs.configure("info", "plain")
try:
    int("token")
except ValueError as error:
    logging.getLogger("uvicorn.error").error("Exception in it\\n", exc_info=error)
logging.getLogger("uvicorn.error").error("Done")
"""


def test_an_exception_is_told_on_the_line() -> None:
    """One line that says where to look, and no words: they quote what was read."""
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stderr.splitlines()
    told = [line.partition(" ")[2] for line in said]
    reason = "Exception in it: ValueError in __main__:7"
    assert told == [f'level=error msg="{reason}"', 'level=error msg="Done"']
