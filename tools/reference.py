"""Write docs/reference/*.md from the code and docs/reference/source.toml; --check compares.

crds.md         every field of our kinds, from their CustomResourceDefinitions
annotations.md  every annotation, from mofa_model/annotations.py
settings.md     every flag of `mofa operator`, from its settings
conditions.md   every condition, reason and Event, from operator/mofa_operator/words.py
kinds.md        every kind of jobs that people already have, from mofa_model/kinds, and the releases
                that run in tests
axes.md         every axis of the search, from the rows of mofa_model/strategy.py
python.md       every function of Python, from mofa_model/answers
"""

from __future__ import annotations

import ast
import inspect
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel
from reference_crds import HEAD, crd_page, shown, table
from reference_python import python_page
from reference_trainers import trainers_page
from transcripts import annotations

from mofa_model import presets
from mofa_model.annotations import FINISH, INPUTS, OUTPUTS, PREFIX, RECORD, SEEN
from mofa_model.axes.axis import Axis, Choice
from mofa_model.axes.rejection import Rejection
from mofa_model.axes.rules import AxisContext
from mofa_model.kinds import KINDS, JobKind
from mofa_model.presets.families import FAMILIES, REFUSED
from mofa_model.search import framework, frameworks
from mofa_model.search.axes import QUESTION
from mofa_model.spec import Training, Workload
from mofa_model.strategy import AXES
from mofa_operator import words
from mofa_operator.settings import OperatorSettings
from mofa_operator.verbs.operator import flags, owner_of

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
THEIRS = f"""\
On [existing jobs](kinds.md) ({", ".join(kind.title for kind in KINDS)}); `paused` counts on a
TrainingJob too. Where Kueue manages a job, `kueue.x-k8s.io/admission-gated-by: mofa.dev/advisor`
takes the place of `gate` ([mode Apply](../apply.md)).
"""
OURS = """\
On every job that is advised. In a cluster the field manager is `mofa-advisor`, by server-side apply
with force: our keys only. All of them go when the mode becomes `Disabled`.
"""
EXISTING = """\
Jobs of these kinds are advised beside TrainingJobs
([who opts in](../manifests.md#existing-kinds-of-jobs)). In settings (`--kinds`, `rbac.kinds` of the
chart) a kind goes by its word there. Launch arguments are written in [mode Apply](../apply.md).
"""
RELEASES = """
## Releases that were tried

With each of these the operator advised jobs whose pods run on a [real node](../real-node.md), and
what it said of them was held against `/proc` of their processes (`tests/node`). Volcano is tried by
its definitions alone.
"""
LABELS = """
## Labels of pods

By these labels, which kube-state-metrics must let through
([metrics](../metrics.md#what-must-be-there)), pods are known as those of a job. A TrainJob's pods
are those of its JobSet; those of a kind that is not here are not told apart.
"""
SETTINGS = """\
A flag counts more than its environment variable, which counts more than the default.
`mofa operator --print-settings` prints the settings that would be used, `--kubeconfig FILE` names
another cluster. Durations are seconds. The chart has a value for each ([install](../install.md)).
"""
CONDITIONS = """\
A condition's `status` is `True`, `False` or `Unknown`; its `message` is one sentence. `True` is
good in every one of them, so that `kubectl wait --for=condition=Ready` (or any other) works.
`kubectl get tjob` shows `Ready` and its reason, `kubectl get cprof` the reason of `AssumptionsHold`
as VERDICT; the rest is in `kubectl describe`. What cannot be judged, because there is no advice, is
`Unknown` and repeats the reason of `Ready`. TrainingJobs have the first six, ClusterProfiles
`Ready`, `HistoryComplete`, `AssumptionsHold` and `NodesExclusive`, AdvisorPolicies `Ready`.
"""


HEALTH = """\
In `status.health` (a field selector), the column HEALTH and on the page, where jobs of other kinds
have it too. It follows from the reason of `PredictionAccurate`. It is empty where a job waits, is
suspended, has ended, or starts and its first step is not due yet.
"""


AXIS = """\
What the search tries by itself, the plainest value first: of two strategies with one score the
plainer wins. A constraint may name values that are not tried by themselves. A strategy says its
values under the keys of the fourth column; a manifest limits them in `spec.constraints`, under the
names of the fifth.
"""
MODELS = """\
# Families of models

The values of `model_type` of a model hub's `config.json` that are read: {read}.

These are known, and refused with what is missing:

"""
REASONS = """\
## Reasons

Why a combination of values is no answer. The first reason that is found is counted, and axes are
looked at in the order above. A ★ marks an expert rule, which `--lift` takes away.
"""


_SHOWN = 90
"""Most characters of an example. [1]"""


class Missing(Exception):
    """The code has a name that docs/reference/source.toml does not explain, or the other
    way round.
    """


def source() -> dict[str, Any]:
    """The content of source.toml: what the code cannot say."""
    return tomllib.loads((FOLDER / "source.toml").read_text(encoding="utf-8"))


def explained(given: Mapping[str, Any], names: Iterable[str], what: str) -> dict[str, Any]:
    """The entries of a table of source.toml; a name without an entry, or an entry without a name,
    is an error.
    """
    wanted = list(names)
    if missing := [name for name in wanted if name not in given]:
        raise Missing(
            f"docs/reference/source.toml: say what {', '.join(missing)} of [{what}] means"
        )
    if spare := [name for name in given if name not in wanted]:
        raise Missing(
            f"docs/reference/source.toml: [{what}] names {', '.join(spare)}, which the code does "
            "not have"
        )
    return {name: given[name] for name in wanted}


def docstrings(owner: type[StrEnum]) -> dict[str, str]:
    """Meaning of each member of an enumeration of words, by its value."""
    body = ast.parse(inspect.getsource(owner)).body[0]
    assert isinstance(body, ast.ClassDef)
    meanings = {}
    for member, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr):
            meaning = " ".join(ast.literal_eval(text.value).split())
            meanings[ast.literal_eval(member.value)] = meaning
    if missing := [member.value for member in owner if member.value not in meanings]:
        raise Missing(
            f"operator/mofa_operator/words.py: {owner.__name__} has no docstring under "
            f"{', '.join(missing)}"
        )
    return meanings


def examples() -> dict[str, str]:
    """What `mofa annotate` writes on the example of the documents, without the ends of
    long texts.
    """
    return {
        key: text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        for key, text in annotations().items()
    }


def annotation_page() -> str:
    """docs/reference/annotations.md."""
    names = [key.removeprefix(PREFIX) for key in (*INPUTS, *OUTPUTS, RECORD, *SEEN, FINISH)]
    given = explained(source()["annotations"], names, "annotations")
    printed = examples()

    def rows(keys: Iterable[str]) -> Iterator[tuple[str, str, str]]:
        for name in (key.removeprefix(PREFIX) for key in keys):
            yield (
                f"`{name}`",
                f"`{given[name].get('example') or printed[name]}`",
                given[name]["says"],
            )

    headings = ("key", "example", "meaning")
    return "\n".join([
        HEAD, "# Annotations\n",
        (f"Every key begins with `{PREFIX}`. `mofa annotate` and the operator write the same ones, "
        "from the same function.\n"),
        "## Written by people\n", THEIRS,
        table(headings, rows(INPUTS)), "", "## Written by us\n",
        OURS,
        table(headings, rows((*OUTPUTS, RECORD, *SEEN, FINISH))), "",
    ])  # fmt: skip


def _versions(kind: JobKind) -> str:
    """The version that is watched, and those that are watched where it is not served."""
    return " or ".join((f"`{kind.api_version}`", *(f"`{version}`" for version in kind.others)))


def kinds_page() -> str:
    """docs/reference/kinds.md."""
    rows = (
        (
            kind.title, _versions(kind), f"`{kind.setting}`",
            f"`{kind.pods_path.removeprefix('spec.')}`",
            f"`{'.'.join(kind.suspend)}`" if kind.suspend else "cannot wait", kind.arguments_note,
        )
        for kind in KINDS
    )  # fmt: skip
    labels = (
        (kind.title,
         f"`{pods.job}`" + f", less the end that its {pods.owner} has" * bool(pods.owner),
         f"`{pods.attempt}`" if pods.attempt else "", ", ".join(f"`{name}`" for name in pods.slot))
        for kind in KINDS if (pods := kind.labels)
    )  # fmt: skip
    headings = (
        "kind",
        "apiVersion",
        "in settings",
        "pods, in `spec`",
        "waits by, in `spec`",
        "launch arguments",
    )
    return "\n".join([
        HEAD, "# Kinds of jobs\n",
        EXISTING,
        table(headings, rows),
        LABELS,
        table(("kind", "job", "attempt", "slot"), labels),
        RELEASES,
        table(("project", "releases"), _releases()), "",
    ])  # fmt: skip


def _releases() -> list[tuple[str, str]]:
    """Releases of each project whose controllers run beside the operator in tests."""
    sys.path.insert(0, str(ROOT / "deploy" / "local"))
    from mofa_local.neighbours import NEIGHBOURS

    releases: dict[str, list[str]] = {}
    for name, neighbour in NEIGHBOURS.items():
        if name != "kube-state-metrics":
            module = neighbour.tool.module
            releases.setdefault(module.requires.removesuffix("/v2"), []).append(module.release)
    return [(f"`{name}`", ", ".join(sorted(releases[name]))) for name in sorted(releases)]


def settings_page() -> str:
    """docs/reference/settings.md."""
    text = [
        HEAD, "# Settings of the operator\n",
        SETTINGS,
    ]  # fmt: skip
    groups: dict[str, list[Any]] = {}
    for flag in flags():
        groups.setdefault(flag.group, []).append(flag)
    titles = {"": "The operator"}
    for group, own in groups.items():
        about = inspect.getdoc(OperatorSettings if not group else _owner(group))
        rows = []
        for flag in own:
            name = (
                f"`--{flag.name}`"
                if flag.kind is not bool
                else f"`--{flag.name}`, `--no-{flag.name}`"
            )
            rows.append((name, f"`{flag.variable}`", shown(flag.default), flag.help))
        text += [f"## {titles.get(group, group.capitalize())}\n", f"{about}\n"]
        text += [table(("flag", "variable", "default", "meaning"), rows), ""]
    return "\n".join(text)


def _owner(group: str) -> type:
    from mofa_operator import settings

    owner: type = getattr(settings, owner_of(group))
    return owner


def condition_page() -> str:
    """docs/reference/conditions.md."""
    given, reasons = source(), docstrings(words.Reason)
    advice = explained(given["reasons"], reasons, "reasons")
    aspects = docstrings(words.Aspect)
    may = explained(given["conditions"], [*aspects, "log"], "conditions")
    if lost := set(reasons) - {reason for own in may.values() for reason in own}:
        raise Missing(f"docs/reference/source.toml: no condition has {', '.join(sorted(lost))}")
    text = [
        HEAD, "# Conditions, reasons and Events\n",
        CONDITIONS,
    ]  # fmt: skip
    for name, about in aspects.items():
        text += [f"## {name}\n", f"{about}\n", _reasons(may[name], reasons, advice)]
    health = docstrings(words.Health)
    text += ["## Health of a job that runs\n", HEALTH]
    text += [
        table(("word", "meaning"), ((f"`{word}`", about) for word, about in health.items())),
        "",
    ]
    text += ["## In the log only\n", _reasons(may["log"], reasons, advice)]
    events = docstrings(words.Happened)
    on = explained(given["events"], events, "events")
    text += [
        "## Events\n",
        "One for an object, a reason and a hash of inputs; a repeat is no second Event.\n",
    ]
    text += [
        table(
            ("reason", "on", "meaning"),
            ((f"`{name}`", on[name], about) for name, about in events.items()),
        ),
        "",
    ]
    return "\n".join(text)


def _reasons(names: Iterable[str], reasons: Mapping[str, str], advice: Mapping[str, str]) -> str:
    rows = ((f"`{name}`", reasons[name], advice[name]) for name in names)
    return table(("reason", "meaning", "what to do"), rows) + "\n"


def axis_page() -> str:
    """docs/reference/axes.md."""
    rows = (
        (
            f"`{axis.name}`",
            _tried(axis),
            f"`{axis.example}`",
            ", ".join(f"`{word.key}`" for word in axis.words),
            ", ".join(f"`{to_camel(word.field)}`" for word in axis.keys if word.about),
            ", ".join(name for name in frameworks() if _lacks(name, axis)),
        )
        for axis in (*QUESTION, *AXES)
    )
    headings = (
        "axis",
        "values",
        "constraint",
        "in a strategy",
        "in a manifest",
        "trainers without some of it",
    )
    reasons = (
        (f"`{rejection.value}`{' ★' if rejection.liftable else ''}", rejection.meaning)
        for rejection in Rejection
    )
    return "\n".join(
        [
            HEAD,
            "# Axes\n",
            AXIS,
            table(headings, rows),
            "",
            REASONS,
            table(("reason", "meaning"), reasons),
            "",
        ]
    )


def model_page() -> str:
    """docs/reference/models.md."""
    read = ", ".join(f"`{name}`" for name in FAMILIES)
    rows = ((f"`{name}`", f"{why} not modelled") for name, why in REFUSED.items())
    return "\n".join([HEAD, MODELS.format(read=read) + table(("model_type", "why"), rows)])


def _asked(model: str) -> AxisContext:
    training = Training(sequence=8192, global_batch=2048, precision=presets.precision("bf16"))
    workload = Workload(model=presets.model(model), training=training)
    return AxisContext(workload=workload, cluster=presets.cluster("h100", 8))


def _tried(axis: Axis) -> str:
    """The values that are tried, the plainest first."""
    if axis.values:
        return axis.values
    values, dense = (axis.tried(_asked(model)) for model in ("deepseek-v3", "llama3-8b"))
    words = [{True: "on", False: "off"}[v] if isinstance(v, bool) else str(v) for v in values]
    return ", ".join(words) + ("" if dense == values else f"; {words[0]} in a dense model")


def _lacks(name: str, axis: Axis) -> bool:
    named = [
        word.choices for word in axis.words if isinstance(word, Choice) and len(axis.fields) == 1
    ]
    values = (
        *(value for value in axis.tried(_asked("deepseek-v3")) if not axis.only_named(value)),
        *(value for choices in named for value in choices),
    )
    return not all(axis.supported_by(framework(name), value) for value in values)


def pages() -> dict[str, str]:
    """Every page by its name."""
    made = {
        "crds.md": crd_page(),
        "annotations.md": annotation_page(),
        "settings.md": settings_page(),
        "conditions.md": condition_page(),
        "kinds.md": kinds_page(),
        "axes.md": axis_page(),
        "python.md": python_page(),
        "models.md": model_page(),
        "trainers.md": trainers_page(),
    }
    return {name: text.rstrip("\n") + "\n" for name, text in made.items()}


def files() -> dict[Path, str]:
    """Every page by its path; a name that source.toml lacks, or has too many, ends the program."""
    try:
        return {FOLDER / name: text for name, text in pages().items()}
    except Missing as missing:
        sys.exit(f"reference: {missing}")


if __name__ == "__main__":
    import generated

    sys.exit(generated.main("reference", "Write docs/reference/*.md from the code.", files))
