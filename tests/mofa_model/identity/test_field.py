"""Jobs of the field in small: class, facts, what becomes of them, today's layout,
nothing secret.
"""

import json
from pathlib import Path

import yaml
from each import each

from mofa_model.errors import InputError
from mofa_model.identity import identify, model_preset
from mofa_model.launch import read_layout
from mofa_model.manifest.documents import Documents
from mofa_model.manifest.jobs import identity_of, question_of
from mofa_model.manifest.surroundings import surroundings
from mofa_model.strategy import format_strategy

COMMANDS = yaml.safe_load(Path(__file__).with_name("commands.yaml").read_text("utf-8"))
JOBS = yaml.safe_load(Path(__file__).with_name("field.yaml").read_text("utf-8"))
POLICY = """\
apiVersion: mofa.dev/v1alpha1
kind: AdvisorPolicy
metadata: {name: all, namespace: default}
spec: {profile: h100-east}
---
"""
"""The policy of a platform team says what its machines are, and nothing of training."""
BESIDE = {"AdvisorPolicy", "ConfigMap", "ClusterTrainingRuntime"}


def looked_at(text):
    """The job of a stream, with what is beside it."""
    stream = Documents.parse(POLICY + text, "x.yaml")
    around = surroundings([stream], [])
    return next(one for one in stream.items if one.kind not in BESIDE), around


def became(item, around):
    try:
        return "asked", question_of(item, around)
    except InputError as error:
        return error.status, str(error)


def same(name, said, value):
    if name == "model" and said and value:
        return said == value or model_preset(said) == model_preset(value) != ""
    return said == value


def differing(job):
    """What is not as an engineer would say, in one line each."""
    item, around = looked_at(job["manifest"])
    found = identity_of(item, around)
    status, question = became(item, around)
    rows = []
    if found.job_class.value != job["class"]:
        rows.append(f"class {found.job_class.value}: {found.reason}")
    if job.get("status", status) != status:
        rows.append(f"status {status}: {question}")
    for name, value in job.get("facts", {}).items():
        said = found.facts.get(name)
        if not same(name, said.value if said else None, value):
            rows.append(f"{name} {said}, not {value}")
    rows += [f"{fact} without a source" for fact in found.facts.values() if not fact.source]
    if status == "asked" and "current" in job:
        today = question.spec.current
        said = "" if today is None else today.strategy or today.arguments
        layout = read_layout(said, job["facts"]["devices"], layers=32)
        if job["current"] not in format_strategy(layout).split(","):
            rows.append(f"today's layout {layout}")
    if "doubt" in job and not any(job["doubt"] in one for one in getattr(question, "doubts", ())):
        rows.append(f"no doubt about {job['doubt']}: {getattr(question, 'doubts', question)}")
    shown = json.dumps(
        [found.reason, {k: [v.value, v.source] for k, v in found.facts.items()}], default=str
    )
    rows += [f"shows {word}" for word in job.get("secret", ()) if word in shown + repr(question)]
    return rows


@each([(job["says"], job) for job in JOBS])
def test_a_job_of_the_field_is_what_an_engineer_would_say(says, job):
    assert not differing(job), says


@each([tuple(row) for row in COMMANDS])
def test_a_command_of_the_field_is_what_an_engineer_would_say(expected, command, facts):
    main = {"name": "main", "image": "registry.example/own:1", "command": command}
    main["resources"] = {"limits": {"nvidia.com/gpu": 8}}
    found = identify({"kind": "Job", "spec": {"template": {"spec": {"containers": [main]}}}})
    said = {name: found.facts[name].value for name in facts if name in found.facts}
    assert (found.job_class.value, said) == (expected, facts), found.reason
    assert "hunter2" not in repr((found.reason, found.facts))
    assert "0123456789abcdef" not in repr((found.reason, found.facts))
