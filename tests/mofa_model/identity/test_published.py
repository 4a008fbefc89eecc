"""Published manifests: what people say of them, and what is said here, with floors that may
only rise.
"""

import json
from pathlib import Path

from mofa_model.errors import InputError
from mofa_model.identity import model_preset
from mofa_model.manifest.documents import Documents
from mofa_model.manifest.jobs import identity_of, question_of
from mofa_model.manifest.surroundings import surroundings

FOLDER = Path(__file__).parents[2] / "data" / "manifests"
TRAINING = {"llm-pretraining", "llm-finetuning"}
POLICY = """\
apiVersion: mofa.dev/v1alpha1
kind: AdvisorPolicy
metadata: {name: all, namespace: default}
spec: {profile: h100-east}
---
"""


def same(name, wanted, said):
    """Whether a fact is right: a model by its preset, a device by its vendor at least."""
    if name == "model":
        tails = [str(one).rstrip("/").rpartition("/")[2].lower() for one in (wanted, said)]
        return tails[0] == tails[1] or model_preset(wanted) == model_preset(said) != ""
    if name == "device_kind":
        return str(said).partition("-")[0] == str(wanted).partition("-")[0].lower()
    if name == "parallel":
        return all(str(said.get(key)) == str(value) for key, value in wanted.items())
    return str(said).lower() == str(wanted).lower()


def told():
    """Every label with the identity of its object and whether it becomes a question."""
    for label in json.loads((FOLDER / "labels.json").read_text("utf-8")):
        text = POLICY + (FOLDER / label["file"]).read_text("utf-8")
        stream = Documents.parse(text, label["file"])
        around = surroundings([stream], [])
        item = next(
            one
            for one in stream.items
            if f"{one.kind}/{one.name or one.metadata.get('generateName')}" == label["object"]
        )
        try:
            question_of(item, around)
            asked = True
        except InputError:
            asked = False
        yield label, identity_of(item, around), asked


def test_published_manifests_are_told_as_people_tell_them():
    """Of every class the floor is what is right today; no fact is wrong, nothing else
    is advised.
    """
    right, facts, missing, rows = 0, 0, [], 0
    for label, found, asked in told():
        rows += 1
        right += found.job_class.value == label["class"]
        assert label["class"] in TRAINING or not asked, label["file"]
        for name, wanted in label["facts"].items() if label["class"] in TRAINING else ():
            if name not in found.facts:
                missing.append((label["file"], name))
                continue
            said = found.facts[name]
            assert same(name, wanted, said.value), (label["file"], name, wanted, said)
            assert said.source
            facts += 1
    assert right >= 72, f"{right} of {rows} classes"
    assert (facts >= 106, len(missing) <= 1) == (True, True), (facts, missing)
