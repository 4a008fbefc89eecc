"""A question has a bound before anything is computed: what would take minutes and gigabytes is
refused with what to constrain.
"""

from pathlib import Path

from mofa_model.cli import main
from mofa_model.search import Effort

ROOT = Path(__file__).parents[3]
GIANT = """
apiVersion: mofa.dev/v1alpha1
kind: TrainingJob
metadata: {name: giant}
spec:
  model:
    architecture:
      {layers: %d, hiddenSize: 5040, heads: 5040, kvHeads: 5040, headDim: 64, ffnSize: 20160, vocabularySize: 50400,
       experts: {count: 5040, topK: 8, ffnSize: 2048}}
  training: {sequenceLength: 5040, globalBatchSize: 8648640, tokens: 1T, framework: megatron}
  cluster: {nodes: 90090, profile: h100-east}
"""


def advised(tmp_path, layers):
    job = tmp_path / "giant.yaml"
    job.write_text(GIANT % layers)
    return main(["advise", "--profile", str(ROOT / "examples" / "h100-east.yaml"), str(job)])


def test_sizes_with_many_divisors_are_refused_before_a_table_is_made(tmp_path, capsys):
    # 60 divisors of 5,040 experts beside 11,517 shapes that runs have are 691,020 rows of the table
    # that would come next.
    assert advised(tmp_path, 1008) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "691,020 layouts to look at, of at most 600,000" in told
    assert "pp has 128, ep has 60" in told


def test_more_layers_than_any_model_has_are_refused_in_the_field(tmp_path, capsys):
    assert advised(tmp_path, 720720) == 2
    assert (
        "spec.model.architecture.layers: 720720 cannot be right; give 1024 or less"
        in capsys.readouterr().err
    )


def test_many_numbers_of_nodes_are_refused_together(monkeypatch, capsys):
    # 1, 2, 3, 4, 6 and 8 nodes of an 8B model, for every trainer, take a second or two.
    question = [
        "advise",
        "--model",
        "llama3.1-8b",
        "--gpu",
        "h100-sxm",
        "--max-nodes",
        "8",
        "--seq",
        "8192",
    ]
    question += ["--global-batch", "128", "--tokens", "1T"]
    assert main(question) == 0
    capsys.readouterr()
    monkeypatch.setattr(Effort.__init__, "__defaults__", (200_000.0,))
    assert main(question) == 2
    told = capsys.readouterr().err
    assert "nodes: the question has more layouts than one answer may look at" in told
    assert (
        "ask about fewer than 6 numbers of nodes, name the trainer where none is named, or constrain"
        in told
    )
