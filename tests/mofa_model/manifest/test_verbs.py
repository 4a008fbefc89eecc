"""`mofa annotate` and `mofa profile` from the command line: output, exit codes, and one line for
what is wrong.
"""

import re
import shutil
from pathlib import Path

import pytest

from mofa_model import cli
from mofa_model.annotations import PREFIX
from mofa_model.manifest.documents import Documents
from mofa_model.manifest.parsing import cluster_profile

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = pytest.mark.usefixtures("asked_once")

SMALL = """\
# a small job that is answered quickly
apiVersion: mofa.dev/v1alpha1
kind: TrainingJob
metadata:
  name: small
spec:
  model: {preset: llama3-8b}
  training: {tokens: 1T, sequenceLength: 8192, globalBatchSize: 64, framework: megatron}
  cluster: {profile: a100-lab, nodes: 2}
"""


def run(capsys, *argv):
    code = cli.main(list(argv))
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(SMALL)
    return str(path)


def test_a_job_is_printed_with_its_advice_and_running_it_twice_changes_nothing(
    capsys, small, tmp_path
):
    code, once, err = run(capsys, "annotate", small)
    (item,) = Documents.parse(once, "x").items
    assert (code, err) == (0, "")
    assert once.startswith("# a small job")
    assert item.annotations[PREFIX + "strategy"].startswith("tp=")
    again = tmp_path / "again.yaml"
    again.write_text(once)
    assert run(capsys, "annotate", str(again)) == (0, once, "")


def test_in_place_writes_the_file_and_prints_nothing(capsys, small):
    assert run(capsys, "annotate", "-i", small) == (0, "", "")
    text = Path(small).read_text("utf-8")
    assert "advisor.mofa.dev/status: " in text
    assert run(capsys, "annotate", "-i", small) == (0, "", "")
    assert Path(small).read_text("utf-8") == text


def test_several_files_become_one_stream(capsys, small, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text("kind: ConfigMap\nmetadata: {name: a}\n")
    code, out, _ = run(capsys, "annotate", str(other), small)
    assert code == 0
    assert [item.kind for item in Documents.parse(out, "x").items] == ["ConfigMap", "TrainingJob"]


def test_a_file_without_a_job_is_printed_as_it_is_and_one_line_says_so(capsys, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")
    code, out, err = run(capsys, "annotate", str(path))
    assert (code, out) == (0, path.read_text())
    assert err.startswith(f"mofa annotate: {path}: nothing to annotate: ")
    assert err.count("\n") == 1


def test_no_feasible_strategy_is_written_and_is_exit_three(capsys, small):
    Path(small).write_text(SMALL.replace("llama3-8b", "llama3-405b"))
    code, out, err = run(capsys, "annotate", small)
    (item,) = Documents.parse(out, "x").items
    assert code == 3
    assert item.annotations[PREFIX + "status"] == "NoRecommendation"
    assert err.startswith("mofa annotate: TrainingJob default/small: NoRecommendation")
    assert err.count("\n") == 1


def test_one_bad_job_in_a_stream_is_exit_two_and_the_others_are_answered_and_printed(
    capsys, tmp_path
):
    """2 before 3 before 0: what is invalid is to be mended first."""
    good = SMALL.replace("name: small", "name: good")
    bad = SMALL.replace("name: small", "name: bad").replace(
        "sequenceLength: 8192", "sequenceLength: 0"
    )
    large = SMALL.replace("name: small", "name: large").replace("llama3-8b", "llama3-405b")
    file = tmp_path / "jobs.yaml"
    for jobs, code in (((good, bad, large), 2), ((good, large), 3), ((bad, good), 2), ((good,), 0)):
        file.write_text("---\n".join(jobs))
        found, out, err = run(capsys, "annotate", str(file))
        items = Documents.parse(out, "x").items
        assert found == code
        assert [item.name for item in items] == [job.split("name: ")[1].split()[0] for job in jobs]
        told = {item.name: item.annotations[PREFIX + "status"] for item in items}
        assert told == {
            name: status
            for name, status in (
                ("good", "Recommended"),
                ("bad", "InvalidInput"),
                ("large", "NoRecommendation"),
            )
            if name in told
        }
        assert err.count("\n") == len(jobs) - 1


@pytest.mark.parametrize("verb", ["advise", "annotate"])
def test_a_profile_is_named_in_the_same_way_everywhere(capsys, tmp_path, verb):
    """By the name of a bundled one or by a file: the answer on the example's copy is the same."""
    job = str(EXAMPLES / "volcano.yaml")
    by_name = run(capsys, verb, job, "--profile", "h100-east")
    by_file = run(capsys, verb, job, "--profile", str(EXAMPLES / "h100-east.yaml"))
    assert by_name[0] == by_file[0] == 0
    # The command to run next names the profile as it was given.
    of_both = [
        [line for line in one[1].splitlines() if not re.search("computed-at|^next ", line)]
        for one in (by_name, by_file)
    ]
    assert of_both[0] == of_both[1]
    assert "is assumed" not in by_name[1]


@pytest.mark.parametrize(
    "words",
    [
        ("advise", str(EXAMPLES / "jobset.yaml")),
        ("annotate", str(EXAMPLES / "jobset.yaml")),
        ("ettr", "--nodes", "4", "--step", "10s"),
        ("simulate", "--nodes", "4", "--step", "10s"),
    ],
)
def test_a_profile_that_is_neither_a_name_nor_a_file_is_refused_with_the_names(capsys, words):
    code, out, err = run(capsys, *words, "--profile", "h100-est")
    assert (code, out) == (2, "")
    assert err == (
        f"mofa {words[0]}: --profile: 'h100-est' cannot be right; give a file, or a bundled name: "
        "a100-lab, gb200-nvl72, h100-east, h800-west\n"
    )


def test_a_manifest_that_says_no_gpu_is_answered_for_the_one_that_is_given(capsys, tmp_path):
    """It was refused with the names of four profiles of the package, whatever GPU was given."""
    named = Path(__file__).parents[2] / "data" / "named" / "swift-pt.yaml"
    code, out, _ = run(capsys, "advise", str(named), "--gpu", "h200")
    assert code == 0
    assert "qwen2.5-7b on 16 h200-141gb-sxm" in out
    assert (
        run(capsys, "advise", str(named), "--profile", "h200")[1].partition("next")[0]
        == (out.partition("next")[0])
    )
    code, _, err = run(capsys, "advise", str(named))
    assert (code, "or the GPU of its nodes with --gpu" in err) == (2, True)


@pytest.mark.parametrize(
    "gpu, said", [("h1000", "h1000"), ("h200", "names the profile a100-lab; leave --gpu out")]
)
def test_a_gpu_beside_a_manifest_is_one_that_exists_and_that_it_does_not_contradict(
    capsys, small, gpu, said
):
    code, out, err = run(capsys, "advise", small, "--gpu", gpu)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_profile_from_a_file(capsys, small, tmp_path):
    profile = tmp_path / "pool.yaml"
    profile.write_text(run(capsys, "profile", "--name", "pool", "--gpu", "h100", "--nodes", "2")[1])
    Path(small).write_text(SMALL.replace("a100-lab, nodes: 2", "pool"))
    code, out, _ = run(capsys, "annotate", small, "--profile", str(profile))
    assert code == 0
    assert '"gpu":"h100-80gb-sxm"' in out


@pytest.mark.parametrize(
    "change, message",
    [
        (
            ("nodes: 2", "nodes: two"),
            "spec.cluster.nodes: 'two' cannot be right; give a whole number",
        ),
        ((", nodes: 2", ""), ""),
        (("globalBatchSize: 64", "globalBatchSize: .nan"), "spec.training.globalBatchSize: nan"),
        (("a100-lab", "nowhere"), "spec.cluster.profile: 'nowhere'"),
        (("{preset: llama3-8b}", "{preset: llama3-8b"), "is not YAML"),
        (
            ("kind: TrainingJob", "kind: TrainingJob\nkind: TrainingJob"),
            "the key 'kind' is given twice",
        ),
        (("tokens: 1T", "tokens: 1.5"), "for example '15T'"),
    ],
)
def test_bad_input_is_one_line_and_exit_two(capsys, small, change, message):
    text = SMALL.replace(*change).replace("profile: a100-lab}", "profile: bare}")
    Path(small).write_text(text)
    code, out, err = run(capsys, "annotate", small)
    assert code == 2
    kept = "".join(line for line in out.splitlines(True) if PREFIX not in line).replace(
        "  annotations:\n", ""
    )
    assert kept == ("" if "is not YAML" in err or "given twice" in err else text)
    assert err.startswith("mofa annotate: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_missing_node_count_offline_names_the_field(capsys, small, tmp_path):
    profile = tmp_path / "pool.yaml"
    profile.write_text(run(capsys, "profile", "--name", "pool", "--gpu", "h100")[1])
    Path(small).write_text(SMALL.replace("a100-lab, nodes: 2", "pool"))
    code, _, err = run(capsys, "annotate", small, "--profile", str(profile))
    assert code == 2
    assert "TrainingJob default/small: InvalidInput: spec.cluster.nodes: is missing" in err


def test_a_manifest_of_ten_megabytes_is_refused_at_once(capsys, tmp_path):
    path = tmp_path / "huge.yaml"
    path.write_bytes(b"# " + b"x" * 10_000_000)
    code, _, err = run(capsys, "annotate", str(path))
    assert code == 2
    assert "give a smaller file" in err


@pytest.mark.parametrize(
    "argv", [("annotate", "nowhere.yaml"), ("annotate", "-i", "-"), ("annotate",)]
)
def test_what_cannot_be_read_or_written_is_exit_two(capsys, argv):
    try:
        code, _, err = run(capsys, *argv)
    except SystemExit as stopped:
        code, err = stopped.code, capsys.readouterr().err
    assert code == 2
    assert err.startswith("mofa annotate: ")


def test_a_file_without_a_profile_is_refused(capsys, small):
    code, _, err = run(capsys, "annotate", small, "--profile", small)
    assert code == 2
    assert "holds no ClusterProfile" in err


def test_the_clock_can_be_fixed_and_a_bad_clock_is_refused(capsys, small, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    assert "2026-01-01T00:00:00Z" in run(capsys, "annotate", small)[1]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    assert run(capsys, "annotate", small)[0] == 2


def test_a_profile_from_flags_is_what_the_parser_reads(capsys, tmp_path):
    flags = ["--name", "pool", "--gpu", "H100-SXM", "--nodes", "4", "--scale-out", "200 Gbit/s", "--label", "pool=a",
             "--storage", "Local=10 GB/s", "--storage", "Remote=1 GB/s:10 GB/s", "--class", "pod=3.0:262"]  # fmt: skip
    code, out, _ = run(capsys, "profile", *flags)
    (item,) = Documents.parse(out, "x").items
    profile = cluster_profile(item.value)
    assert code == 0
    assert profile.spec.gpu == "h100-80gb-sxm"
    assert [tier.name for tier in profile.spec.checkpoint_storage.tiers] == ["Local", "Remote"]
    assert profile.status.nodes.ready == 4
    target = tmp_path / "pool.yaml"
    assert run(capsys, "profile", *flags, "--out", str(target)) == (0, "", "")
    assert target.read_text("utf-8") == out


def test_a_bundled_profile_is_shown_with_its_comments(capsys):
    code, out, _ = run(capsys, "profile", "--show", "h100-east")
    assert code == 0
    assert out == (EXAMPLES / "h100-east.yaml").read_text("utf-8")


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--gpu", "h10"),
        ("--gpu", "h100", "--scale-out", "4parsec"),
        ("--gpu", "h100", "--class", "pod=x:3"),
        ("--gpu", "h100", "--class", "pod=3"),
        ("--gpu", "h100", "--class", "rack=3:4"),
        ("--gpu", "h100", "--storage", "Tape=1 GB/s"),
        ("--gpu", "h100", "--storage", "Local"),
        ("--gpu", "h100", "--storage", "Local=1:2:3:4"),
        ("--gpu", "h100", "--nodes", "-3"),
        ("--gpu", "h100", "--label", "pool"),
        ("--show", "nowhere"),
    ],
)
def test_a_bad_flag_of_profile_is_one_line_and_exit_two(capsys, flags):
    code, out, err = run(capsys, "profile", *flags)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_all_examples_together_are_a_fixed_point(capsys, tmp_path):
    files = [str(shutil.copy(path, tmp_path)) for path in sorted(EXAMPLES.glob("*.yaml"))]
    code, once, _ = run(capsys, "annotate", *files)
    assert code == 0
    whole = tmp_path / "whole.yaml"
    whole.write_text(once)
    assert run(capsys, "annotate", str(whole)) == (0, once, "")


def test_a_profile_of_this_machine_says_what_its_tools_told_or_why_there_is_none(
    tmp_path, monkeypatch, capsys
):
    """We wrote the lines in the form that nvidia-smi has for a machine with two L4; there is no
    GPU here.
    """
    tool = tmp_path / "nvidia-smi"

    def told(text):
        tool.write_text(f"#!/bin/sh\nprintf '{text}'\n", encoding="utf-8")
        tool.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["profile", "--measure"]) == 2
    assert "no nvidia-smi here; give --gpu" in capsys.readouterr().err
    told("NVIDIA L4, 23034\\nNVIDIA L4, 23034\\n")
    assert cli.main(["profile", "--measure"]) == 0
    said = capsys.readouterr()
    assert "gpu: l4\n" in said.out
    assert "gpusPerNode: 2\n" in said.out
    assert "GiB" in said.out, "main memory, by the kernel"
    assert "2 x l4; its kernels and links are those of the preset" in said.err
    told("NVIDIA K80, 11441\\n")
    assert cli.main(["profile", "--measure"]) == 2
    assert "--device-file" in capsys.readouterr().err
    told("NVIDIA L4, 23034\\nNVIDIA A10, 23028\\n")
    assert cli.main(["profile", "--measure"]) == 2
    assert "NVIDIA A10, NVIDIA L4" in capsys.readouterr().err
    told("")
    assert cli.main(["profile", "--measure"]) == 2
    assert "no GPU" in capsys.readouterr().err
