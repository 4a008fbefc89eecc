"""JSON patch (RFC 6902) as the API server applies it: a failed test or a missing path refuses
the whole.
"""

import copy


class Unfit(Exception):
    """The patch does not fit the object."""


def patched(body, operations):
    """The object after a patch."""
    body = copy.deepcopy(body)
    for one in operations:
        *above, last = [
            step.replace("~1", "/").replace("~0", "~") for step in one["path"].split("/")[1:]
        ]
        place = body
        for step in above:
            place = _get(place, step)
        if one["op"] == "test":
            stands = _get(place, last, missing=None)
            if stands != one["value"] or isinstance(stands, bool) is not isinstance(
                one["value"], bool
            ):
                raise Unfit(one)
        elif one["op"] == "remove":
            _get(place, last)
            del place[last]
        elif isinstance(place, list):
            _set(place, last, one)
        else:
            if one["op"] == "replace":
                _get(place, last)
            place[last] = copy.deepcopy(one["value"])
    return body


def _set(place, last, one):
    at = len(place) if last == "-" else int(last)
    if one["op"] == "replace":
        place[at] = copy.deepcopy(one["value"])
    else:
        place.insert(at, copy.deepcopy(one["value"]))


_RAISE = object()


def _get(place, step, missing=_RAISE):
    try:
        return place[int(step)] if isinstance(place, list) else place[step]
    except (KeyError, IndexError, TypeError, ValueError):
        if missing is _RAISE:
            raise Unfit(step) from None
        return missing
