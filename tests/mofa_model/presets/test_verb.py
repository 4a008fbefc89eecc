"""`mofa presets` lists what is known by name, in every form, and refuses what is not."""

import csv
import io
import json

import pytest

from mofa_model import output, presets
from mofa_model.cli import main


def answer(capsys, *words):
    assert main(["presets", *words]) == 0
    return capsys.readouterr().out


def test_all_kinds_are_counted(capsys):
    rows = json.loads(answer(capsys, "--json"))["rows"]
    assert {row["kind"]: row["count"] for row in rows} == {
        kind: len(presets.names(kind)) for kind in presets.KINDS
    }


@pytest.mark.parametrize("kind", presets.KINDS)
@pytest.mark.parametrize("form", output.FORMS)
def test_every_kind_is_listed_in_every_form(capsys, kind, form):
    text = answer(capsys, kind, "-o", form)
    assert all(name in text for name in presets.names(kind))


@pytest.mark.parametrize(
    "said, meant",
    [
        ("gpus", "devices"), ("GPU", "devices"), ("networks", "fabrics"), ("trainers", "stacks"), ("model", "models"),
        ("h100", "devices h100"), ("NVIDIA H100 80GB HBM3", "devices h100"), ("llama3-8b", "models llama3-8b"), ("bf16", "precisions bf16"),
    ],
)  # fmt: skip
def test_a_kind_by_another_word_and_a_name_alone_are_understood(said, meant, capsys):
    assert answer(capsys, said) == answer(capsys, *meant.split())


def test_a_cloud_s_node_is_shown_with_what_it_differs_in(capsys):
    said = " ".join(answer(capsys, "p4d.24xlarge").split())
    assert said.startswith("a100-40gb-sxm field value")
    assert "p4d.24xlarge is a node with it: scale_out efa-p4d, host_memory 1152 GiB" in said


def test_machines_get_numbers_with_sources(capsys):
    rows = list(csv.DictReader(io.StringIO(answer(capsys, "devices", "-o", "csv"))))
    h100 = next(row for row in rows if row["name"] == "h100-80gb-sxm")
    assert float(h100["bf16"]) == 989e12
    assert "stas00" in h100["source"]


def test_one_preset_is_shown_whole_under_its_id(capsys):
    shown = json.loads(answer(capsys, "models", "llama3-405b", "--json"))
    assert shown["title"] == "llama3.1-405b"
    fields = {row["field"]: row["value"] for row in shown["rows"]}
    assert fields["attention.kv_heads"] == "8"
    assert "NeMo" in fields["source"]


def test_constants_are_shown_with_the_layers_that_made_them(capsys):
    text = answer(
        capsys, "constants", "h100", "--stack", "nanotron", "--defect", "ring-latency", "--json"
    )
    sources = {row["constant"]: row["source"] for row in json.loads(text)["rows"]}
    assert sources["host.extra_rank"].startswith("defect.ring-latency: ")


@pytest.mark.parametrize(
    "words, said",
    [
        (["gpuz"], "unknown name 'gpuz'"),
        (["models", "llama9"], "unknown name 'llama9'"),
        (["constants"], "name a device"),
        (["constants", "h100", "--release", "x"], "release"),
        (["constants", "h100", "--defect", "x"], "defects"),
    ],
)
def test_what_is_unknown_is_refused_in_one_line(capsys, words, said):
    assert main(["presets", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
