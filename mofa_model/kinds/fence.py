"""Expressions of the admission policy that a job kind is made of: what may differ between an old and a new object."""

from __future__ import annotations


def same(old: str, new: str, *but: str) -> str:
    """CEL: two mappings are the same but for some keys.

    >>> print(same("o", "n", "args"))
    n.all(k, k == "args" || (k in o && o[k] == n[k]))
    && o.all(k, k == "args" || k in n)
    """
    names = ", ".join(f'"{one}"' for one in but)
    others = f"k in [{names}]" if len(but) > 1 else f"k == {names}"
    return f"{new}.all(k, {others} || (k in {old} && {old}[k] == {new}[k]))\n&& {old}.all(k, {others} || k in {new})"


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
