"""JSON patch (RFC 6902) as the API server applies it: a failed test or a missing path refuses
the whole.
"""

import copy


class Unfit(Exception):
    """The patch does not fit the object."""


def patched(body, operations):
    """The object after a patch."""
    body = copy.deepcopy(body)
    for operation in operations:
        *above, last = [
            step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]
        ]
        place = body
        for step in above:
            place = _get(place, step)
        if operation["op"] == "test":
            stands = _get(place, last, missing=None)
            if stands != operation["value"] or isinstance(stands, bool) is not isinstance(
                operation["value"], bool
            ):
                raise Unfit(operation)
        elif operation["op"] == "remove":
            _get(place, last)
            del place[last]
        elif isinstance(place, list):
            _set(place, last, operation)
        else:
            if operation["op"] == "replace":
                _get(place, last)
            place[last] = copy.deepcopy(operation["value"])
    return body


def _set(place, last, operation):
    at = len(place) if last == "-" else int(last)
    if operation["op"] == "replace":
        place[at] = copy.deepcopy(operation["value"])
    else:
        place.insert(at, copy.deepcopy(operation["value"]))


_RAISE = object()


def _get(place, step, missing=_RAISE):
    try:
        return place[int(step)] if isinstance(place, list) else place[step]
    except (KeyError, IndexError, TypeError, ValueError):
        if missing is _RAISE:
            raise Unfit(step) from None
        return missing
