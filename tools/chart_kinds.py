"""What the chart says of kinds of jobs, from mofa_model/kinds: templates/_kinds.tpl, and the choice
in values.yaml.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence

from mofa_model.kinds import BESIDE, KINDS, JobKind
from mofa_model.kinds.patches import same

HEADER = "{{- /* Made by tools/chart.py from mofa_model/kinds; do not edit. */ -}}\n"


def template() -> str:
    """The templates, each with what it is for."""
    return HEADER + "".join((
        _define("kinds", "Existing kinds by the names of rbac.kinds, as group/plural.",
                _settings()),
        _define("beside", "What jobs and their pods name, in their namespaces: groups, resources, "
                "and by which kinds.", _beside(namespaced=True)),
        _define("above", "The same, of the whole cluster.", _beside(namespaced=False)),
        _define("annotated", "CEL: resources on which the operator writes annotations.",
                _annotated()),
        _define("groups", "API groups of existing kinds.", _several(kind.group for kind in KINDS)),
        _define("resources", "Resources of existing kinds.",
                _several(kind.plural for kind in KINDS)),
        _define("untouched", "CEL: a spec is as it was, whatever webhooks of its own project add "
                "to it.", _untouched()),
        _define("suspended", "CEL: whether a job waits, as its spec says it: (the spec).",
                _suspended()),
        _define("resumed", "CEL: nothing of a job differs but that it waits no more.", _resumed()),
        _define("launches", "CEL: what may differ in a job that is launched, a variable for each "
                "kind.", _launches()),
    ))  # fmt: skip


def values(text: str) -> str:
    """values.yaml with the kinds that can be chosen, which are all chosen unless somebody
    says otherwise.
    """
    every = ", ".join(kind.setting for kind in KINDS)
    made, count = re.subn(
        r"(  # -- [^\n]*@enum )[^\n]*\n  kinds: [^\n]*\n", rf"\1{every}\n  kinds: [{every}]\n", text
    )
    if count != 1:
        raise SystemExit(f"chart: values.yaml has {count} keys `kinds` with @enum, not one")
    return made


def _define(name: str, about: str, body: str) -> str:
    return (
        f'\n{{{{- /* {about} */ -}}}}\n{{{{- define "mofa.{name}" -}}}}\n{body}\n{{{{- end }}}}\n'
    )


def _settings() -> str:
    return "\n".join(f"{kind.setting}: {kind.group}/{kind.plural}" for kind in KINDS)


def _beside(*, namespaced: bool) -> str:
    """Each group with its resources and the kinds of jobs that name them: those of its own group,
    or all.
    """
    groups: dict[str, list[str]] = {}
    for kind in BESIDE:
        if kind.namespaced == namespaced:
            groups.setdefault(kind.group, []).append(kind.plural)
    lines = []
    for group, plurals in groups.items():
        by = [kind.setting for kind in KINDS if kind.group == group] or [
            kind.setting for kind in KINDS
        ]
        lines.append(f"{group}: {{resources: [{', '.join(plurals)}], by: [{', '.join(by)}]}}")
    return "\n".join(lines)


def _annotated() -> str:
    names = ["mofa.dev/trainingjobs", *(f"{kind.group}/{kind.plural}" for kind in KINDS)]
    return "\n".join(textwrap.wrap(", ".join(f'"{name}"' for name in names), 96))


def _several(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def _paths() -> dict[tuple[str, ...], list[JobKind]]:
    """Kinds of jobs by the path of the field that holds a job back; the path of most kinds comes
    last.
    """
    kinds_by_path: dict[tuple[str, ...], list[JobKind]] = {}
    for kind in KINDS:
        if kind.suspend:
            kinds_by_path.setdefault(kind.suspend, []).append(kind)
    return dict(sorted(kinds_by_path.items(), key=lambda item: len(item[1])))


def _chosen(made: list[tuple[list[JobKind], str]]) -> str:
    """CEL: the expression of the kind at hand; the last one is that of all others."""
    *branches, (_, text) = made
    for kinds, other in reversed(branches):
        names = [f'"{kind.resource}"' for kind in kinds]
        which = f"== {names[0]}" if len(names) == 1 else f"in [{', '.join(names)}]"
        text = f"variables.resource {which} ? {other} : {text}"
    return text


def _untouched() -> str:
    old, new = "oldObject.spec", "object.spec"
    parts = ["object.?spec == oldObject.?spec"]
    for kind in KINDS:
        if kind.stamped_templates:
            text = textwrap.indent(
                f"&& {_same_but_stamped(old, new, kind.stamped_templates)}", "  "
            )
            parts.append(
                '(request.resource.group + "/" + request.resource.resource == '
                f'"{kind.group}/{kind.plural}"\n{text})'
            )
    return "\n|| ".join(parts)


def _same_but_stamped(old: str, new: str, stamped: Sequence[tuple[str, ...]]) -> str:
    """CEL: two mappings are the same, but that pod templates at some paths may have got a creation
    time, which is null.

    >>> print(_same_but_stamped("o", "n", [("t",)]))
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
            inside = textwrap.indent(
                _same_but_stamped(f"{old}.{step}", f"{new}.{step}", below), "  "
            )
            parts.append(f'(!("{step}" in {new}) || (\n{inside}))')
    return "\n&& ".join(parts)


def _suspended() -> str:
    reads = [
        (kinds, "{{ . }}" + "".join(f".?{step}" for step in path))
        for path, kinds in _paths().items()
    ]
    return f"({_chosen(reads)}).orValue(false) == true"


def _resumed() -> str:
    made = []
    for path, kinds in _paths().items():
        old, new, parts = "variables.old", "variables.new", []
        for step in path:
            parts.append(same(old, new, step))
            old, new = f"{old}.{step}", f"{new}.{step}"
        made.append((kinds, "(\n" + textwrap.indent("\n&& ".join(parts), "  ") + ")"))
    return f"({_chosen(made)})"


_RAISED = "variables.new.?{0}.orValue(0) >= variables.old.?{0}.orValue(0)"


def _launches() -> str:
    changing = [kind for kind in KINDS if kind.changed_field]
    made = []
    for kind in changing:
        limit = kind.restart_limit if kind.restart_limit and kind.restart_limit.can_change else None
        parts = [
            f'variables.resource == "{kind.resource}"',
            same(
                "variables.old",
                "variables.new",
                kind.changed_field,
                *(limit.path[:1] if limit else ()),
            ),
            *([_RAISED.format(".?".join(limit.path))] if limit else []),
            *([kind.change_rule] if kind.change_rule else []),
        ]
        text = textwrap.indent("\n&& ".join(parts), "    ")
        made.append(f"- name: {kind.word} # arguments of a {kind.title}\n  expression: >-\n{text}")
    sizes = [
        f"""(variables.resource == "{kind.resource}"\n&& {kind.size_rule})"""
        for kind in KINDS
        if kind.size_rule
    ]
    text = textwrap.indent("\n|| ".join(sizes), "    ")
    made.append(
        "- name: sized # a job that asks for a size and states none gets one\n"
        f"  expression: >-\n{text}"
    )
    any_of = " || ".join(f"variables.{kind.word}" for kind in changing)
    return "\n".join([*made, f"- name: arguments # of any kind\n  expression: {any_of}"])
