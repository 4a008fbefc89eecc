"""Logs on standard error: text for people, JSON for machines."""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

import orjson
from aiohttp.http_exceptions import HttpProcessingError

from mofa_model.terminal import coded, printable

_NOISE: Final = (
    "Unresolved resources cannot be served",
    "Request attempt ",
    "Watcher for ",
    "Multidimensional multitasker ",
)
"""Beginnings of kopf's messages on absent kinds and its own end, which `watches` logs once."""


class Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, message, and the traceback where there is one."""
        line: dict[str, str] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return coded(orjson.dumps(line).decode())


class Text(logging.Formatter):
    """One line for people, whatever text an object holds; a traceback below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Time, level, logger and message in one line."""
        return printable(super().formatMessage(record))


def set_up(form: str, *, verbose: bool) -> None:
    """Log to standard error, `form` being text or json; `verbose` logs every decision."""
    handler = logging.StreamHandler(sys.stderr)
    text = Text("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%S")
    handler.setFormatter(Json() if form == "json" else text)
    handler.addFilter(_is_shown)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("mofa_operator").setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger("kopf").setLevel(logging.WARNING)


def _is_shown(record: logging.LogRecord) -> bool:
    """Whether a log record is shown: noise of kopf, asyncio and strangers' requests is not."""
    if record.name == "asyncio":  # kopf's watches do not close cleanly when the loop ends
        return "closing of asynchronous generator" not in record.getMessage()
    if record.name == "aiohttp.server":  # a stranger's bad request must not fill the log
        return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)
    if not record.name.startswith("kopf"):
        return True
    if record.exc_info is not None:  # `Watches` logs in one line why kopf has ended
        record.exc_info = record.exc_text = None
    return not record.getMessage().startswith(_NOISE)
