"""Log lines on standard error, as the bootstrap and as the commands write them.

Both in the form of logrus, ``time="..." level=info msg="..."``, or as JSON: the
form that upstream's programs and the rules that collect their lines use.
"""

from __future__ import annotations

import time

from proxyinit.logrus import line, write_stderr

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging

LEVELS = ("error", "warning", "info", "debug")
FORMS = ("plain", "json")


def say(level: str, message: str) -> None:
    """Write a line of the bootstrap, which has no use for the logging module."""
    write_stderr(line(level, message, time.time(), "plain", {}))


def configure(level: str, form: str) -> None:
    """Send what the commands log, from a level on, to standard error."""
    import logging  # noqa: PLC0415  (8 ms that the bootstrap does not need)

    # Nobody reads these of a record, and finding them out costs half of a line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001  (documented: no frames are looked up)

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            name = record.levelname.lower()
            message = record.getMessage()
            if record.exc_info and (error := record.exc_info[1]):
                message = f"{message.rstrip()}: {_unexpected(error)}"
            write_stderr(line(name, message, record.created, form, {}))

    logging.basicConfig(level=level.upper(), handlers=[Lines()], force=True)


def _unexpected(error: BaseException) -> str:
    """Kind and place of what a library did not expect; its words may quote secrets."""
    place, trace = "", error.__traceback__
    while trace is not None:
        place = f" in {trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"
        trace = trace.tb_next
    return type(error).__name__ + place
