"""Fifty pull requests of launch scripts, half of them bad: what a reviewer is told."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mofa_model.answers.check import review
from mofa_model.answers.questions import CheckQuestion
from mofa_model.answers.reviewed import launches_in
from mofa_model.cli import main
from mofa_model.launch.table import table

ROOT = Path(__file__).parents[3]
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=llama
#SBATCH --nodes={nodes}
#SBATCH --gpus-per-node=h100:8
#SBATCH --time={time}
# what is trained
TP={tp}
PP={pp}
MBS={mbs}
ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --seq-length 8192 --max-position-embeddings 8192 --swiglu --bf16
    --tokenizer-model meta-llama/Llama-3.1-8B
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size $PP
    --micro-batch-size $MBS --global-batch-size {batch}
    --save-interval {save}
    --lr {lr} {more}
)
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 pretrain_gpt.py "${{ARGS[@]}}"
"""
USUAL = dict(
    nodes=4, time="2-00:00:00", tp=2, pp=1, mbs=1, batch=256, save=600, lr="3e-4",
    more="--sequence-parallel --use-distributed-optimizer",
)  # fmt: skip
SHARDED = USUAL["more"]
BAD = {
    "does-not-fit": [dict(mbs=n, batch=256 * n) for n in (16, 32)]
    + [dict(tp=1, mbs=8, more=SHARDED), dict(tp=1, mbs=16, more=SHARDED), dict(nodes=1, mbs=16, batch=512)]
    + [dict(tp=1, pp=1, mbs=4, nodes=2, more="")],
    "refused": [dict(tp=3), dict(tp=5), dict(pp=3), dict(mbs=3), dict(batch=250), dict(tp=64)],
    "slower": [
        dict(more=f"{SHARDED} --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
        dict(tp=8), dict(tp=8, pp=4), dict(pp=4, batch=256), dict(tp=4), dict(pp=8), dict(tp=4, pp=4),
    ],
    "interval": [dict(save=n) for n in (1, 2, 3)] + [dict(save=200_000), dict(save=5000, time="02:00:00"), dict(save=10**6)],
}  # fmt: skip
GOOD = [
    dict(lr=one, save=save) for one, save in itertools.product(("1e-4", "2e-4", "6e-4", "1e-3"), (400, 500, 700))
] + [dict(time=one) for one in ("1-00:00:00", "12:00:00", "7-00:00:00", "0", "UNLIMITED")] + [
    dict(nodes=8, batch=512), dict(nodes=8), dict(nodes=2, batch=128), dict(batch=512), dict(batch=1024),
    dict(more=f"{SHARDED} --log-interval 1"), dict(more=f"{SHARDED} --wandb-project x"), dict(more=f"{SHARDED} --seed 3"),
]  # fmt: skip


def told(change):
    """Rules of the findings of one pull request."""
    (before,) = launches_in(SCRIPT.format(**USUAL), "train.sbatch")
    (after,) = launches_in(SCRIPT.format(**{**USUAL, **change}), "train.sbatch")
    return [one.rule for one in review(after, before, CheckQuestion([])) if one.level != "note"]


def test_an_option_of_megatron_that_is_spelt_wrong_is_refused_with_the_one_that_is_meant() -> None:
    text = SCRIPT.format(**USUAL)
    for wrong, meant in {
        "--tensor-parallel-sizes 2": "tensor-model-parallel-size",
        "--sequence-paralel": "sequence-parallel",
        "--save-intervall 4": "save-interval",
        "--recompute-granularty full": "recompute-granularity",
    }.items():
        (launch,) = launches_in(text.replace("--lr", f"{wrong} --lr"), "train.sbatch")
        (found,) = review(launch, None, CheckQuestion([]))
        said = f"megatron has no option '{wrong.partition(' ')[0]}'; did you mean --{meant}?"
        assert (found.rule, found.message, found.line_number) == ("refused", said, 19)


@pytest.mark.parametrize(
    "command",
    [
        "accelerate launch --config_file there.yaml t.py",
        "deepspeed t.py --deepspeed there.json",
        "torchrun pretrain_gpt.py --num-layers 32 --tensor-model-parallel-size ${10}",
    ],
)
def test_what_stands_in_a_file_or_a_variable_that_nobody_reads_is_a_note_and_no_refusal(
    command,
) -> None:
    text = f"#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=h100:8\nsrun {command}\n"
    (launch,) = launches_in(text, "train.sbatch")
    (found,) = review(launch, None, CheckQuestion([]))
    assert (found.rule, found.level, found.line_number) == ("not-read", "note", 3)


def test_lines_that_sbatch_does_not_read_are_one_finding() -> None:
    text = "#!/bin/bash\nset -e\n#SBATCH -N 2\n#SBATCH -p gpu\n#SBATCH -t 10\nsrun x\n"
    (launch,) = launches_in(text, "train.sbatch")
    (found,) = review(launch, None, CheckQuestion([]))
    assert found.text == (
        "train.sbatch:3: error: sbatch does not read it: it stands behind a command; more lines alike: 2 [refused]"
    )


def test_no_option_of_megatrons_own_parser_is_taken_for_another() -> None:
    own = json.loads((ROOT / "tests/data/trainer_options.json").read_text("utf-8"))["megatron"]
    names = [one.removeprefix("--").replace("_", "-") for one in (*own["options"], *own["beside"])]
    assert len(names) > 700
    assert [one for one in names if table("megatron").meant_by(one)] == []


def test_of_25_bad_pull_requests_24_are_told_and_of_25_good_ones_at_most_one() -> None:
    bad = [(rule, change) for rule, some in BAD.items() for change in some]
    assert (len(bad), len(GOOD)) == (25, 25)
    missed = [(rule, change, told(change)) for rule, change in bad if rule not in told(change)]
    false = [(change, rules) for change in GOOD if (rules := told(change))]
    assert len(missed) <= 1, missed
    assert len(false) <= 1, false


def test_what_was_so_before_the_change_is_a_note_and_what_got_worse_is_not() -> None:
    def levels(before, after):
        (one,), (other,) = (
            launches_in(SCRIPT.format(**{**USUAL, **change}), "t") for change in (before, after)
        )
        return [(found.rule, found.level) for found in review(other, one, CheckQuestion([]))]

    big = dict(mbs=32, batch=256 * 32)
    assert levels(big, {**big, "lr": "1e-4"})[0] == ("does-not-fit", "note")
    assert levels(big, dict(mbs=64, batch=256 * 64))[0] == ("does-not-fit", "error")
    assert levels(dict(save=1), dict(save=2)) == [("interval", "note")]
    assert levels(dict(save=2), dict(save=1)) == [("interval", "warning")]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository whose script has changed since its first commit."""
    monkeypatch.chdir(tmp_path)
    for words in (["init", "-q"], ["config", "user.email", "a@b"], ["config", "user.name", "a"]):
        subprocess.run(["git", *words], check=True)
    script = tmp_path / "train.sbatch"
    script.write_text(SCRIPT.format(**USUAL))
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", "commit", "-qm", "the script"], check=True)
    script.write_text(SCRIPT.format(**{**USUAL, "tp": 8}))
    return tmp_path


def test_a_change_is_compared_with_the_commit_before(repository, capsys) -> None:
    assert (
        main(["check", "--base", "HEAD", "--sarif", "found.sarif", "train.sbatch", "-o", "json"])
        == 5
    )
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert (found["rule"], found["file"], found["line"]) == ("slower", "train.sbatch", 15)
    (run,) = json.loads((repository / "found.sarif").read_text())["runs"]
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 15
    assert main(["check", "--base", "HEAD", "--annotate", "train.sbatch"]) == 5
    said = capsys.readouterr().out
    assert said.startswith("::warning file=train.sbatch,line=15,title=mofa slower::a step takes")


def test_a_script_without_a_known_device_gets_a_note_and_passes(repository, capsys) -> None:
    text = SCRIPT.format(**USUAL).replace("h100:8", "8")
    (repository / "train.sbatch").write_text(text)
    assert main(["check", "train.sbatch"]) == 0
    assert "give --gpu: it is not said here" in " ".join(capsys.readouterr().out.split())


MANIFESTS = ROOT / "examples"


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("jobset.yaml", "micro-batch-size=1", "micro-batch-size=16", ("does-not-fit", 28)),
        ("jobset.yaml", "pipeline-model-parallel-size=4", "pipeline-model-parallel-size=5", ("refused", 26)),
        ("llama3-405b.yaml", "preset: llama3-405b", "preset: lama3-405b", ("refused", 12)),
        ("llama3-405b.yaml", "sequenceLength: 8192", "sequenceLength: long", ("refused", 15)),
        ("h100-east.yaml", "gpu: ", "gpus: ", ("refused", 11)),
    ],
)  # fmt: skip
def test_a_manifest_is_reviewed_with_the_line_of_its_field(
    tmp_path, capsys, name, old, new, expected
) -> None:
    text = (MANIFESTS / name).read_text()
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new))
    words = ["--model", "llama3-70b", "-o", "json"]
    assert main(["check", str(tmp_path / name), *words]) == 5
    found = json.loads(capsys.readouterr().out)["findings"]
    assert expected in [(one["rule"], one["line"]) for one in found], found
    assert main(["check", str(MANIFESTS / name), *words]) == 0
    capsys.readouterr()


def test_objects_are_compared_with_those_of_the_same_name(repository, capsys) -> None:
    text = (MANIFESTS / "pytorchjob.yaml").read_text()
    (repository / "job.yaml").write_text(text)
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", "commit", "-qm", "a job"], check=True)
    (repository / "job.yaml").write_text(text.replace(":selective", ":full"))
    words = ["check", "--base", "HEAD", "job.yaml", "-o", "json"]
    assert main(words) == 0  # by less than a twentieth
    capsys.readouterr()
    assert main([*words, "--slower", "0.01"]) == 5
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert (found["rule"], found["file"]) == ("slower", "job.yaml")


def test_a_base_that_is_none_is_refused_by_name(repository, capsys) -> None:
    assert main(["check", "--base", "nowhere", "train.sbatch"]) == 2
    assert "--base: 'nowhere'" in capsys.readouterr().err


def test_a_file_may_be_what_another_replaces_also_where_there_is_no_git(
    repository, capsys, monkeypatch
) -> None:
    Path("before.sbatch").write_text(SCRIPT.format(**USUAL))
    Path("after.sbatch").write_text(SCRIPT.format(**{**USUAL, "tp": 8}))
    for path in (os.environ["PATH"], "/nowhere"):
        monkeypatch.setenv("PATH", path)
        assert main(["check", "--base", "before.sbatch", "after.sbatch"]) == 5
        assert "more for each" in capsys.readouterr().out
    assert main(["check", "--base", "HEAD", "train.sbatch"]) == 2
    assert "git is needed for a commit" in capsys.readouterr().err


def test_the_action_reviews_what_differs_from_its_base_and_nothing_else(repository) -> None:
    entry = ROOT / "deploy" / "check" / "entry.sh"
    (repository / "other.sbatch").write_text("#!/bin/bash\nsrun hostname\n")
    around = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "MOFA_BASE": "HEAD",
    }
    done = subprocess.run([entry], env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 5, done.stderr
    assert done.stdout.count("::warning file=train.sbatch") == 1
    subprocess.run(["git", "checkout", "-q", "train.sbatch"], check=True)
    done = subprocess.run([entry], env=around, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "mofa check: no launch script differs from HEAD\n")
