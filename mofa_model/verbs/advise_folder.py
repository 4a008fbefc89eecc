"""An advice to take away: a folder with the script, the trainer's files, a manifest, the answer and what to do. Not a verb."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from mofa_model import files, output, presets
from mofa_model.advice import Advice
from mofa_model.annotations import PREFIX
from mofa_model.errors import InputError, UnknownName
from mofa_model.kinds import KINDS, JobKind
from mofa_model.kinds.kind import MOUNTED, NewJob
from mofa_model.kinds.pods import GPU
from mofa_model.launch import Launch, launch_script, program_of, unverified
from mofa_model.terminal import printable

SCRIPT: Final = "launch.sh"
_IMAGE: Final = "registry.example/{trainer}:VERSION"


def kind_of(name: str) -> JobKind:
    """The kind of jobs that is to be written, by its name in any case."""
    made = {kind.kind.lower(): kind for kind in KINDS if type(kind).made is not JobKind.made}
    if name.lower() not in made:
        raise UnknownName("--as", name, [kind.kind for kind in made.values()])
    return made[name.lower()]


def save(
    folder: str, advice: Advice, launch: Launch, document: Mapping[str, Any], kind: JobKind
) -> list[str]:
    """Write the folder; names of its files."""
    gpus = advice.gpus // advice.nodes
    manifest = f"{kind.word}.yaml"
    texts = {
        "README.md": _readme(advice, launch, manifest, kind),
        SCRIPT: launch_script(launch, advice.nodes, gpus),
        manifest: "---\n".join(map(_yaml, kind.made(_job(advice, launch)))),
        "advice.json": output.as_json(document),
        **launch.files,
    }
    files.write_folder(folder, texts, programs=[SCRIPT])
    return list(texts)


def _job(advice: Advice, launch: Launch) -> NewJob:
    """The launch as a job: its model is named where it is a preset, so that the advisor in a cluster knows the job."""
    annotations, resource = dict[str, str](), GPU[0]
    with suppress(InputError):
        annotations = {f"{PREFIX}model": presets.model(advice.model).name}
    with suppress(InputError):
        resource = GPU[presets.device_class(advice.device).startswith("cdna")]

    def there(words: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{MOUNTED}/{word}" if word in launch.files else word for word in words)

    return NewJob(
        name=re.sub(r"[^a-z0-9]+", "-", advice.model.lower()).strip("-")[:40].strip("-")
        or "training",
        nodes=advice.nodes,
        gpus=advice.gpus // advice.nodes,
        resource=resource,
        image=_IMAGE.format(trainer=launch.trainer),
        annotations=annotations,
        words=(*program_of(launch.trainer), *there(launch.arguments)),
        environment=launch.environment,
        files=launch.files,
        starter=there(launch.starter),
    )


def _yaml(told: Mapping[str, Any]) -> str:
    """An object of a manifest; files in it are blocks."""
    from ruamel.yaml.scalarstring import LiteralScalarString

    data = {name: LiteralScalarString(text) for name, text in told.get("data", {}).items()}
    return output.render("yaml", [], {**told, **({"data": data} if data else {})})


def _readme(advice: Advice, launch: Launch, manifest: str, kind: JobKind) -> str:
    """What is here and how it starts, on one screen."""
    image = _IMAGE.format(trainer=launch.trainer)
    why = unverified(launch.trainer, launch.arguments, launch.release)
    verified = f"Not verified: {why}." if why else "The trainer's own checks took such launches."
    notes = "".join(f"\nNote: {note}." for note in launch.notes)
    config = "".join(f"- `{name}`: read by {launch.trainer}\n" for name in launch.files)
    return f"""\
# {printable(advice.model)} on {advice.gpus} {advice.device}

{advice.explanation}

- `{SCRIPT}`: run it on each of {advice.nodes} nodes with MASTER_ADDR and NODE_RANK set, and with arguments of your own
  (model, data, folders); they come before the layout
- `{manifest}`: a {kind.kind}; put your image in place of `{image}`, add the same arguments, `kubectl apply -f {manifest}`
{config}- `advice.json`: the whole answer, in SI units

Written for {launch.release}. {verified}{notes}
"""
