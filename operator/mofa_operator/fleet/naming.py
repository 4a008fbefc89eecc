"""Which job a person means by a name. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mofa_model.errors import BadValue, UnknownName
from mofa_model.kinds import Kind
from mofa_operator.fleet.changes import named
from mofa_operator.keys import JOBS, TRAINING_JOB, Key


def job_named(text: str, jobs: Collection[Key], namespace: str) -> Key:
    """The job that NAME or KIND/NAME names in a namespace; a TrainingJob before what it speaks for."""
    word, slash, name = text.rpartition("/")
    kinds = kinds_of(word) if slash else JOBS
    here = [key for key in jobs if key.namespace == namespace]
    found = sorted(
        (key for key in here if key.name == name and key.kind in kinds),
        key=lambda key: key.kind != TRAINING_JOB,
    )
    if not found:
        elsewhere = sorted(
            {key.namespace for key in jobs if key.name == name and key.kind in kinds}
        )
        if elsewhere:
            raise BadValue("job", text, f"there is none in {namespace}; give -n {elsewhere[0]}")
        also = f"`kubectl mofa top -n {namespace}` lists those of this namespace"
        raise UnknownName("job", text, sorted({key.name for key in here}), also=also)
    if len(found) > 1 and found[0].kind != TRAINING_JOB:
        raise BadValue("job", text, f"it may mean several: give {_either(map(named, found))}")
    return found[0]


def kinds_of(word: str) -> list[Kind]:
    """The kinds that a word means, as kubectl takes it: jobset, jobsets, jobsets.jobset.x-k8s.io, tjob."""
    low = word.lower()
    known: dict[Kind, tuple[str, ...]] = {
        kind: (kind.kind.lower(), kind.plural, kind.resource) for kind in JOBS
    }
    known[TRAINING_JOB] = (*known[TRAINING_JOB], "tjob")
    found = [kind for kind, names in known.items() if low in names]
    if not found:
        raise UnknownName("kind", word, [kind.kind.lower() for kind in JOBS])
    return found


def _either(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}"
