"""Expressions of the admission policy that a job kind is made of: what may differ between an old and a new object."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence


def same(old: str, new: str, *but: str) -> str:
    """CEL: two mappings are the same but for some keys.

    >>> print(same("o", "n", "args"))
    n.all(k, k == "args" || (k in o && o[k] == n[k]))
    && o.all(k, k == "args" || k in n)
    """
    names = ", ".join(f'"{one}"' for one in but)
    others = f"k in [{names}]" if len(but) > 1 else f"k == {names}"
    return f"{new}.all(k, {others} || (k in {old} && {old}[k] == {new}[k]))\n&& {old}.all(k, {others} || k in {new})"


def untouched(old: str, new: str, stamped: Sequence[tuple[str, ...]]) -> str:
    """CEL: two mappings are the same, but that pod templates at some paths may have got a creation time, which is null.

    >>> print(untouched("o", "n", [("t",)]))
    n.all(k, k == "t" || (k in o && o[k] == n[k]))
    && o.all(k, k == "t" || k in n)
    && ("t" in n) == ("t" in o)
    && (!("t" in n) || [[o.t, n.t]].all(pair,
      pair[1].all(k, k == "metadata" || (k in pair[0] && pair[0][k] == pair[1][k]))
      && pair[0].all(k, k == "metadata" || k in pair[1])
      && pair[1].?metadata.orValue({}).all(k, pair[0].?metadata[?k] == pair[1].?metadata[?k]
        || (k == "creationTimestamp" && pair[1].metadata[k] == null))
      && pair[0].?metadata.orValue({}).all(k, pair[1].?metadata[?k].hasValue())))
    """
    steps = list(dict.fromkeys(path[0] for path in stamped))
    parts = [same(old, new, *steps)]
    for step in steps:
        parts.append(f'("{step}" in {new}) == ("{step}" in {old})')
        below = [path[1:] for path in stamped if path[0] == step]
        if () in below:
            parts.append(f"""\
(!("{step}" in {new}) || [[{old}.{step}, {new}.{step}]].all(pair,
{textwrap.indent(same("pair[0]", "pair[1]", "metadata"), "  ")}
  && pair[1].?metadata.orValue({{}}).all(k, pair[0].?metadata[?k] == pair[1].?metadata[?k]
    || (k == "creationTimestamp" && pair[1].metadata[k] == null))
  && pair[0].?metadata.orValue({{}}).all(k, pair[1].?metadata[?k].hasValue())))""")
        else:
            inside = textwrap.indent(untouched(f"{old}.{step}", f"{new}.{step}", below), "  ")
            parts.append(f'(!("{step}" in {new}) || (\n{inside}))')
    return "\n&& ".join(parts)


def same_pods(old: str, new: str) -> str:
    """CEL: two pod templates are the same but for the annotations in which a trainer is told its arguments."""
    before, after = (f"{one}.?metadata.orValue({{}})" for one in (old, new))
    annotations = ".?metadata.?annotations"
    return f"""\
{same(old, new, "metadata")}
&& {same(before, after, "annotations")}
&& {new}{annotations}.orValue({{}}).all(k, k in variables.told
  || {old}{annotations}[?k] == {new}{annotations}[?k])
&& {old}{annotations}.orValue({{}}).all(k, k in variables.told || {new}{annotations}[?k].hasValue())"""
