"""`mofa observe` from end to end: its own process, a log that is written, the series over HTTP, and
how it ends.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from mofa_model.cli import main
from mofa_model.manifest.documents import Documents

ROOT = Path(__file__).resolve().parents[3]
LOGS = ROOT / "tests" / "data" / "logs"
PATIENCE = 60.0
"""Longest wait for what must come. [s]"""
LABELS = '{training_job="tiny",training_namespace="research"}'


@contextmanager
def observing(log, *flags, environment=()):
    """The verb in a process of its own, and the address that it serves."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mofa_model", "observe", str(log), "--address", "127.0.0.1", "--port", "0", "--poll", "20ms", *flags],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **dict(environment)},
    )  # fmt: skip
    try:
        said = process.stderr.readline()
        found = re.search(r"http://\S+", said)
        yield process, found.group() if found else said
    finally:
        process.kill()
        process.communicate()


def series(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value)
        for name, _, value in (l.rpartition(" ") for l in lines if not l.startswith("#"))
    }


def until(url, name, value):
    limit = time.monotonic() + PATIENCE
    while (found := series(url)).get(name) != value and time.monotonic() < limit:
        time.sleep(0.02)
    assert found.get(name) == value
    return found


def test_a_log_that_is_written_is_served_while_it_grows(tmp_path):
    log, lines = (
        tmp_path / "train.log",
        (LOGS / "megatron.log").read_text().splitlines(keepends=True),
    )
    with observing(log, "--job", "tiny", "--namespace", "research") as (process, url):
        (start,) = series(url).items()  # nothing is known but that it looks, and nothing is nought
        assert start == (
            f"mofa_train_start_timestamp_seconds{LABELS}",
            pytest.approx(time.time(), abs=PATIENCE),
        )
        log.write_text("".join(lines[:40]))
        until(url, f"mofa_train_step{LABELS}", 30.0)
        with log.open("a") as file:
            file.writelines(lines[40:])
        found = until(url, f"mofa_train_step{LABELS}", 60.0)
        assert found[f"mofa_train_tokens_per_second{LABELS}"] == pytest.approx(256 * 4096 / 8.012)
        assert found[f"mofa_train_step_seconds{LABELS}"] == pytest.approx(8.012)
        assert found[f"mofa_train_checkpoint_total{LABELS}"] == 3
        assert found[f"mofa_train_checkpoint_step{LABELS}"] == 60
        assert found[f"mofa_train_checkpoint_interval_steps{LABELS}"] == 20
        assert found[f"mofa_train_restarts_total{LABELS}"] == 1
        assert found[f"mofa_train_steps_redone_total{LABELS}"] == 7
        assert found[f"mofa_train_last_step_timestamp_seconds{LABELS}"] == pytest.approx(
            time.time(), abs=PATIENCE
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_speeds_go_when_the_log_has_been_silent_and_the_step_stays(tmp_path):
    log = tmp_path / "train.log"
    log.write_bytes((LOGS / "nanotron.log").read_bytes())
    os.utime(log, (1000, 1000))
    with observing(log, "--job", "tiny", "--namespace", "research") as (_, url):
        found = until(url, f"mofa_train_step{LABELS}", 30.0)
        assert found[f"mofa_train_last_step_timestamp_seconds{LABELS}"] == 1000
        assert f"mofa_train_tokens_per_second{LABELS}" not in found


def test_a_pods_environment_names_the_job(tmp_path):
    pod = {"TRAINING_JOB": "tiny", "POD_NAMESPACE": "research"}
    (tmp_path / "train.log").write_bytes((LOGS / "nanotron.log").read_bytes())
    with observing(tmp_path / "train.log", environment=pod.items()) as (_, url):
        until(url, f"mofa_train_step{LABELS}", 30.0)


def test_a_log_whose_tokens_cannot_be_known_ends_the_verb_with_what_to_give(tmp_path):
    log = tmp_path / "train.log"
    log.write_bytes((LOGS / "nemo.log").read_bytes())
    with observing(log, "--job", "tiny") as (process, _):
        assert process.wait(PATIENCE) == 2
        assert "give --sequence, or --job-file" in process.stderr.read()


def test_a_port_that_is_taken_is_one_line_and_exit_two(tmp_path):
    with observing(tmp_path / "train.log", "--job", "a") as (_, url):
        port = url.rpartition(":")[2].partition("/")[0]
        with observing(tmp_path / "train.log", "--job", "b", "--port", port) as (process, said):
            assert process.wait(PATIENCE) == 2
            assert "cannot be listened on" in said


def run(capsys, *arguments):
    code = main(["observe", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_once_prints_what_the_log_holds(capsys):
    code, out, _ = run(capsys, LOGS / "torchtitan.log", "--once")
    assert code == 0
    assert re.search(r"last step +100\n", out)
    assert re.search(r"steps redone +10\n", out)
    assert "Tokens per second: the trainer's number for one GPU times 64." in out


def test_once_as_json_has_every_figure(capsys):
    code, out, _ = run(capsys, LOGS / "megatron.log", "--once", "--json", "--job", "tiny")
    answer = json.loads(out)
    assert (code, answer["job"], answer["format"], answer["step"]) == (0, "tiny", "megatron", 60)
    assert answer["median_step_seconds"] == pytest.approx(8.011)
    assert answer["tokens_per_second"] == pytest.approx(256 * 4096 / 8.012)


def test_a_job_file_says_what_lines_do_not(capsys):
    file = ROOT / "examples" / "llama3-405b.yaml"
    code, out, _ = run(capsys, LOGS / "nemo.log", "--once", "--json", "--job-file", file)
    answer = json.loads(out)
    assert (code, answer["job"], answer["namespace"]) == (0, "llama3-405b", "default")
    assert answer["tokens_per_second"] == pytest.approx(128 * 8192 / 6.088)  # the line's own batch


def test_a_job_files_nodes_are_gpus_by_its_profile(capsys, tmp_path):
    log = tmp_path / "titan.log"
    log.write_text("step:  1  loss: 8.0  tps: 100\nstep:  2  loss: 8.0  tps: 100\n")
    code, out, _ = run(
        capsys, log, "--once", "--json", "--job-file", ROOT / "examples" / "llama3-405b.yaml"
    )
    assert (code, json.loads(out)["tokens_per_second"]) == (0, 100 * 256 * 8)
    job = tmp_path / "job.yaml"
    whole = (ROOT / "examples" / "llama3-405b.yaml").read_text("utf-8")
    job.write_text(whole.replace("    nodes: 256\n", "    nodes: 3\n    gpusPerNode: 4\n"))
    code, out, _ = run(capsys, log, "--once", "--json", "--job-file", job)
    assert (code, json.loads(out)["tokens_per_second"]) == (0, 100 * 3 * 4)


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((LOGS / "nemo.log", "--once"), "give --sequence, or --job-file"),
        ((LOGS / "README.md", "--once"), "holds no steps in the format of megatron, nemo, torchtitan"),
        ((LOGS / "megatron.log", "--once", "--format", "nanotron"), "holds no steps in the format of nanotron"),
        ((LOGS / "megatron.log", "--once", "--format", "pytorch"), "unknown name 'pytorch'"),
        ((LOGS / "nothing.log", "--once"), "does not exist"),
        ((LOGS / "megatron.log",), "--job: is missing"),
        ((LOGS / "megatron.log", "--once", "--sequence", "-1"), "--sequence"),
        ((LOGS / "megatron.log", "--once", "--gpus", "0"), "give a number from 1"),
        ((LOGS / "megatron.log", "--job", "a", "--poll", "5"), "--poll"),
        ((LOGS / "megatron.log", "--job", "a", "--port", "70000", "--address", "127.0.0.1"), "cannot be listened on"),
        ((LOGS / "megatron.log", "--once", "--job-file", ROOT / "examples" / "h100-east.yaml"), "holds 0 TrainingJobs"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line_and_exit_two(capsys, arguments, said):
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_the_verb_is_listed():
    listed = subprocess.run(
        [sys.executable, "-m", "mofa_model"], capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"^  observe +follow a trainer's log", listed, re.MULTILINE)


def test_the_sidecar_example_runs_as_it_is_written(tmp_path):
    (item,) = Documents.parse(
        (ROOT / "examples" / "sidecar.yaml").read_text(), "sidecar.yaml"
    ).items
    pod = item.value["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (sidecar,), (trainer,) = pod["initContainers"], pod["containers"]
    assert sidecar["restartPolicy"] == "Always"
    words = [*sidecar["command"], *sidecar["args"]]
    assert words[:3] == ["mofa", "observe", "/logs/train.log"]
    assert "tee -a /logs/train.log" in trainer["args"][0]
    assert [port["containerPort"] for port in sidecar["ports"]] == [9400]
    (tmp_path / "train.log").write_bytes((LOGS / "megatron.log").read_bytes())
    named = dict.fromkeys((one["name"] for one in sidecar["env"]), "tiny") | {
        "POD_NAMESPACE": "research"
    }
    with observing(tmp_path / "train.log", *words[3:], environment=named.items()) as (_, url):
        found = until(url, f"mofa_train_step{LABELS}", 60.0)
        assert found[f"mofa_train_tokens_per_second{LABELS}"] == pytest.approx(
            256 * 8192 / 8.012
        )  # as --sequence says


BATCH = """\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=h100:8
srun torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 32 \\
  --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336 --swiglu --group-query-attention \\
  --num-query-groups 8 --seq-length 8192 --micro-batch-size 1 --global-batch-size 256 --bf16 \\
  --use-distributed-optimizer --tokenizer-model meta-llama/Llama-3.1-8B
"""


def test_predicted_and_observed_stand_at_the_end_of_a_jobs_log_and_reading_it_again_changes_nothing(
    tmp_path, capsys
):
    log, script = tmp_path / "train.log", tmp_path / "train.sbatch"
    log.write_text((LOGS / "megatron.log").read_text().rstrip("\n"))
    script.write_text(BATCH)
    words = ["observe", str(log), "--once", "--script", str(script), "-o", "json"]
    assert main([*words, "--append"]) == 0
    first = json.loads(capsys.readouterr().out)
    lines = [line for line in log.read_text().splitlines() if line.startswith("mofa observe: ")]
    assert re.fullmatch(
        r"mofa observe: median step time: [\d.]+ s observed, [\d.]+ s predicted", lines[4]
    )
    assert first["predicted"]["tokens_per_second"] == pytest.approx(
        256 * 8192 / first["predicted"]["step_seconds"]
    )
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_a_script_without_its_device_is_told_the_option(tmp_path, capsys):
    script = tmp_path / "train.sbatch"
    script.write_text(BATCH.replace("h100:8", "8"))
    words = ["observe", str(LOGS / "megatron.log"), "--once", "--script", str(script)]
    assert main(words) == 2
    assert "train.sbatch: give --gpu" in capsys.readouterr().err
    assert main([*words, "--gpu", "h100"]) == 0
    assert "predicted" in capsys.readouterr().out
    assert main([*words[:2], "--append"]) == 2
    assert "give --once and one file" in capsys.readouterr().err


def test_a_file_for_node_exporter_is_written_while_a_log_grows_and_removed_at_the_end(tmp_path):
    log, file = tmp_path / "train.log", tmp_path / "job.prom"
    log.write_text((LOGS / "megatron.log").read_text())
    process = subprocess.Popen(
        [sys.executable, "-m", "mofa_model", "observe", str(log), "--job", "tiny", "--textfile", str(file), "--poll", "20ms"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wanted = 'mofa_train_step{training_job="tiny",training_namespace="default"} 60.0'
        limit = time.monotonic() + PATIENCE
        while not (file.exists() and wanted in file.read_text()) and time.monotonic() < limit:
            time.sleep(0.05)
        assert wanted in file.read_text()
        process.terminate()
        assert process.wait(PATIENCE) == 0
        assert not file.exists()
    finally:
        process.kill()
        process.communicate()
