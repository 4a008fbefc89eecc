r"""Queries built from parts, so that no text of a user can leave its quotes.

    selector("up", cluster='a"b')  ->  up{cluster="a\"b"}

Values of labels are quoted, names are checked, durations are whole milliseconds. Nothing else in the operator makes
PromQL out of what it was given; free PromQL comes only from a ClusterProfile, which is the administrator's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from mofa_model.errors import BadValue

_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
_METRIC: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
_BOUND: Final = re.compile(r"([a-z0-9])([A-Z])")
_PLAIN: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_OBJECT: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")


def quoted(text: str) -> str:
    r"""Text as a PromQL string.

    >>> print(quoted('a"} or up{b="'))
    "a\"} or up{b=\""
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadValue("label value", text, "give text that is valid Unicode") from None
    return (
        '"' + "".join(_PLAIN.get(c) or (c if c.isprintable() else _escaped(c)) for c in text) + '"'
    )


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"


def matcher(label: str, value: str, operator: str = "=") -> str:
    """One condition on a label; the value is literal for `=` and `!=`, a regular expression for `=~` and `!~`.

    >>> matcher("cluster", "east")
    'cluster="east"'
    """
    if not _LABEL.match(label):
        raise BadValue(
            "Prometheus label",
            label,
            "write letters, digits and _, a letter first, for example cluster",
        )
    return f"{label}{operator}{quoted(value)}"


def any_of(values: Iterable[str]) -> str:
    r"""A regular expression that is exactly these values.

    >>> any_of(["a.b", "c"])
    'a\\.b|c'
    """
    return "|".join(_SPECIAL.sub(r"\\\g<0>", value) for value in values)


def selector(metric: str, matchers: Iterable[str] = (), /, **equal: str) -> str:
    """Series of a metric, by ready matchers and by labels that are equal to a value.

    >>> selector("up", [matcher("job", "", "!=")], cluster="east")
    'up{job!="",cluster="east"}'
    """
    if not _METRIC.match(metric):
        raise BadValue("metric", metric, "write letters, digits, _ and :, a letter first")
    inside = ",".join([*matchers, *(matcher(label, value) for label, value in equal.items())])
    return f"{metric}{{{inside}}}" if inside else metric


def duration(seconds: float) -> str:
    """A duration as PromQL writes it, to the millisecond.

    >>> duration(300), duration(0.5)
    ('300s', '500ms')
    """
    milliseconds = round(seconds * 1000)
    if milliseconds <= 0:
        raise BadValue("duration", seconds, "give a time above zero")
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"


def node_label(label: str) -> str:
    """How kube-state-metrics names the label of a node or a pod.

    Source: kube-state-metrics, allowed labels of kube_node_labels: what is no letter, digit or _ becomes _, and words in
    camel case become snake case.

    >>> node_label("nvidia.com/gpu.product"), node_label("nodePool")
    ('label_nvidia_com_gpu_product', 'label_node_pool')
    """
    plain = re.sub(r"[^a-zA-Z0-9_]", "_", label)
    return "label_" + _BOUND.sub(r"\1_\2", plain).lower()


def filled(template: str, values: Mapping[str, str]) -> str:
    """An administrator's query with `$namespace` and `$job` replaced; a name of an object needs no escaping, others are refused.

    >>> filled('rate(tokens{job="$job"}[5m])', {"namespace": "ml", "job": "llama"})
    'rate(tokens{job="llama"}[5m])'
    """
    for name, value in values.items():
        if not _OBJECT.match(value):
            raise BadValue(name, value, "give the name of an object")
    return re.sub(r"\$(namespace|job)\b", lambda found: values[found.group(1)], template)
