"""What an API server's refusals mean for us: each is one of a few errors.

ApiError                    the API server did not do what was asked
├── Gone                    the object is no more, or another one has its name now: forget it
│   └── Expired             the version or continuation that was named is no more: list anew
├── Refused                 we may not (RBAC, admission policy), until an administrator acts
├── Conflict                somebody else changed it in between: look again
│   └── Taken               what was to be made is there already
├── Invalid                 what we sent cannot be right: a fault of ours, permanent
└── Busy                    not now (429, 5xx, network, credentials): again, after any `retry_after`
"""

from __future__ import annotations

import re
from typing import Final

import orjson

from mofa_model.errors import MofaError

_OTHER: Final = re.compile(r"uid mismatch|UID in precondition|metadata\.uid: ")
"""How the API server says that the object of this name is not the one that was meant."""


class ApiError(MofaError):
    """The API server did not do what was asked."""

    exit_code = 4


class Gone(ApiError):
    """The object is no more, or another one has its name now."""


class Expired(Gone):
    """The version of a watch, or the continuation of a list, is no more."""


class Refused(ApiError):
    """We may not: role or admission policy."""


class Conflict(ApiError):
    """Somebody else changed it, or made it, in between."""


class Taken(Conflict):
    """What was to be made is there already."""


class Invalid(ApiError):
    """What we sent cannot be right."""


class Busy(ApiError):
    """Not now."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        """`retry_after` is what the server asked for. [s]"""
        super().__init__(message)
        self.retry_after = retry_after


def wait_of(text: str | None) -> float | None:
    """The header Retry-After, where it is a number of seconds. [s]"""
    return float(text) if text is not None and text.isdecimal() else None


_WHOLE: Final = re.compile(r'Invalid value: "(?:[^"\\]|\\.)*": (?=strict decoding error)')
"""The whole object, before the API server says which field of it is unknown."""


def refusal(code: int, raw: bytes, wait: float | None, method: str, path: str) -> ApiError:
    """The error of ours for a response of the API server, by its status and reason."""
    try:
        status_object = orjson.loads(raw)
        explanation, reason = (
            _WHOLE.sub("", str(status_object.get("message", ""))),
            status_object.get("reason"),
        )
    except (orjson.JSONDecodeError, AttributeError):
        explanation, reason = raw[:200].decode(errors="replace").strip(), None
    message = f"{method} {path.partition('?')[0]}: {explanation or 'no message'} ({code})"
    if code == 410:
        return Expired(message)
    if code == 404 or (code in {409, 422} and _OTHER.search(explanation)):
        return Gone(message)
    if code == 403:
        return Refused(message)
    if code == 409:
        return Taken(message) if reason == "AlreadyExists" else Conflict(message)
    if code in {401, 408, 429} or code >= 500 or code < 400:
        return Busy(message, wait)
    return Invalid(message)
