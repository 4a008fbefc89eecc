"""`mofa annotate -` works as a KRM function in a real kustomize pipeline."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mofa_local import binaries

from mofa_model.annotations import PREFIX
from mofa_model.manifest.documents import Documents

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def kustomize():
    """The local stack's."""
    return str(binaries.path("kustomize"))


@pytest.fixture
def overlay(tmp_path):
    """A folder that kustomize builds: the example, and our function as a transformer."""
    shutil.copy(EXAMPLES / "llama3-405b.yaml", tmp_path / "job.yaml")
    (tmp_path / "other.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: other\n"
    )
    script = tmp_path / "mofa-annotate"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -m mofa_model annotate -\n")
    script.chmod(0o755)
    (tmp_path / "annotate.yaml").write_text(
        "apiVersion: mofa.dev/v1alpha1\nkind: ClusterProfile\nmetadata:\n  name: pool\n  annotations:\n"
        "    config.kubernetes.io/function: |\n      exec: {path: ./mofa-annotate}\nspec: {gpu: h100}\n"
    )
    (tmp_path / "kustomization.yaml").write_text(
        "resources: [job.yaml, other.yaml]\ntransformers: [annotate.yaml]\nnamePrefix: east-\n"
    )
    return tmp_path


def build(kustomize, folder):
    made = subprocess.run(
        [kustomize, "build", "--enable-alpha-plugins", "--enable-exec", str(folder)],
        env={**os.environ, "SOURCE_DATE_EPOCH": "1767225600"},
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return made.stdout


@pytest.mark.slow
def test_kustomize_hands_over_its_resources_and_takes_them_back_annotated(kustomize, overlay):
    items = {item.kind: item for item in Documents.parse(build(kustomize, overlay), "built").items}
    job = items["TrainingJob"]
    assert job.name == "east-llama3-405b"
    assert job.annotations[PREFIX + "status"] in {"Recommended", "LowConfidence"}
    assert job.annotations[PREFIX + "computed-at"] == "2026-01-01T00:00:00Z"
    assert items["ConfigMap"].annotations == {}


@pytest.mark.slow
def test_a_second_build_over_the_first_changes_nothing(kustomize, overlay):
    once = build(kustomize, overlay)
    (overlay / "job.yaml").write_text(
        once.split("---\n")[-1]
        if "kind: TrainingJob" in once.split("---\n")[-1]
        else once.split("---\n")[0]
    )
    (overlay / "kustomization.yaml").write_text(
        "resources: [job.yaml, other.yaml]\ntransformers: [annotate.yaml]\n"
    )
    (overlay / "other.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: east-other\n"
    )
    assert build(kustomize, overlay) == once
