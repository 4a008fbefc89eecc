"""An advice to take away: a folder whose script starts, whose manifest is a job that asks for the
same, or no folder at all.
"""

import json
import os
import re
import subprocess
import sys

import pytest
from ruamel.yaml import YAML

from mofa_model import files
from mofa_model.cli import main
from mofa_model.errors import BadFile
from mofa_model.kinds import demand_of
from mofa_model.launch import read_layout
from mofa_model.strategy import parse_strategy

ONE = [word for axis in ("pp=2", "cp=1", "mbs=1", "vpp=1") for word in ("--constraint", axis)]
JOB = [
    "--model",
    "llama3-8b",
    "--gpu",
    "h100",
    "--gpus",
    "64",
    "--global-batch",
    "256",
    "--seq",
    "8192",
    "--top",
    "0",
]
KINDS = ("JobSet", "TrainJob", "PyTorchJob", "RayJob")


def saved(folder, *words, framework="megatron", layout=ONE):
    return main(
        ["advise", *JOB, "--framework", framework, *layout, "--save-dir", str(folder), *words]
    )


@pytest.fixture(scope="module", params=KINDS)
def taken(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("taken") / "out"
    assert saved(folder, "--as", request.param.lower()) == 0
    return request.param, folder


def programs(folder, seen):
    """A PATH on which torchrun writes its arguments down."""
    (folder / "torchrun").write_text(
        f'#!/bin/sh\nprintf "%s\\0" "$CUDA_DEVICE_MAX_CONNECTIONS" "$@" >>{seen}\n'
    )
    (folder / "torchrun").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_the_script_starts_the_launch_with_peoples_own_words_before_it(taken, tmp_path):
    _, folder = taken
    advice = json.loads((folder / "advice.json").read_text())
    script = folder / "launch.sh"
    subprocess.run(["bash", "-n", script], check=True)
    environment = {"PATH": programs(tmp_path, tmp_path / "seen")}
    command = [script, "--data-path", "a b"]
    alone = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "say NODE_RANK, 0 on the first node" in alone.stderr
    subprocess.run(
        command, env=environment | {"NODE_RANK": "3", "MASTER_ADDR": "first"}, check=True
    )
    nodes = ["--nnodes", "8", "--nproc-per-node", "8", "--node-rank", "3", "--master-addr", "first"]
    launch = advice["launch"]
    told = (tmp_path / "seen").read_text().split("\0")[:-1]
    assert told[0] == launch["environment"].get("CUDA_DEVICE_MAX_CONNECTIONS", "")
    assert told[1:12] == [*nodes, "--master-port", "29500", "pretrain_gpt.py"]
    own = told.index("--data-path")
    assert told[own:] == [*command[1:], *launch["arguments"]]
    assert told[(at := told.index("--num-layers")) : at + 2] == ["--num-layers", "32"]


def test_the_manifest_is_a_job_that_asks_for_what_was_advised(taken):
    kind, folder = taken
    (path,) = folder.glob("*.yaml")
    job, *rest = YAML(typ="safe").load_all(path.read_text())
    assert (job["kind"], path.stem) == (kind, kind.lower())
    assert job["metadata"] == {
        "name": "llama3-8b",
        "annotations": {"advisor.mofa.dev/model": "llama3-8b"},
    }
    assert [one["kind"] for one in rest] == ["ConfigMap"] * (kind == "RayJob")
    demand = demand_of(job)
    assert (demand.gpus, demand.gpus_per_pod) == (64, 8)
    advice = json.loads((folder / "advice.json").read_text())
    wanted, found = parse_strategy(advice["strategy"]), read_layout(demand.words, 64, layers=32)
    assert (found.tp, found.pp, found.dp, found.sharding) == (
        wanted.tp,
        wanted.pp,
        wanted.dp,
        wanted.sharding,
    )
    assert (
        list(demand.words[-len(advice["launch"]["arguments"]) :]) == advice["launch"]["arguments"]
    )


def test_everything_is_told_on_one_screen_and_the_answer_is_the_one_that_is_printed(
    taken, tmp_path, capsys
):
    kind, folder = taken
    lines = (folder / "README.md").read_text().splitlines()
    assert len(lines) <= 24
    assert {f"`{path.name}`" for path in folder.iterdir()} <= {
        *" ".join(lines).replace(":", "").split(),
        "`README.md`",
    }
    assert saved(tmp_path / "again", "--as", kind, "--json") == 0
    printed = capsys.readouterr()
    assert (tmp_path / "again" / "advice.json").read_text() == printed.out
    assert printed.err.startswith("saved: ")
    assert printed.err.count("\n") == 1


DEEPSPEED = [word for axis in ("mbs=1", "cp=1", "tp=1") for word in ("--constraint", axis)]


def test_the_trainers_own_file_lies_beside_the_script_and_in_the_pods(tmp_path):
    folder = tmp_path / "out"
    assert saved(folder, framework="deepspeed", layout=DEEPSPEED) == 0
    config = (folder / "ds_config.json").read_text()
    assert json.loads(config)["zero_optimization"]
    environment = {
        "PATH": programs(tmp_path, tmp_path / "seen"),
        "NODE_RANK": "0",
        "MASTER_ADDR": "first",
    }
    subprocess.run(
        [folder / "launch.sh"], env=environment | {"SCRIPT": "mine.py"}, check=True, cwd=tmp_path
    )
    told = (tmp_path / "seen").read_text().split("\0")
    assert "mine.py" in told
    assert told[told.index("--deepspeed") + 1] == str(folder / "ds_config.json")
    job, data = YAML(typ="safe").load_all((folder / "jobset.yaml").read_text())
    pod = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert "/etc/mofa/ds_config.json" in pod["containers"][0]["args"]
    assert {"name": "launch", "configMap": {"name": data["metadata"]["name"]}} in pod["volumes"]
    assert data["data"] == {"ds_config.json": config}


def test_what_is_no_preset_is_not_named_and_other_gpus_have_their_own_name(tmp_path):
    """The model of a file opts nothing in: no advisor in a cluster knows its name, and what it is
    called steers no terminal.
    """
    config = {
        "_name_or_path": "evil\x1b[2J\u202ename\nsecond",
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 1024,
        "num_hidden_layers": 8,
    }
    config |= {
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "intermediate_size": 4096,
        "vocab_size": 32000,
    }
    (tmp_path / "My_Model").mkdir()
    (tmp_path / "My_Model" / "config.json").write_text(json.dumps(config))
    own = ["--model", str(tmp_path / "My_Model"), "--gpu", "mi300x", "--gpus", "8"]
    assert (
        saved(tmp_path / "out", *own, layout=["--constraint", "pp=1", "--constraint", "cp=1"]) == 0
    )
    job = YAML(typ="safe").load((tmp_path / "out" / "jobset.yaml").read_text())
    assert "annotations" not in job["metadata"]
    assert re.fullmatch("[a-z0-9-]{1,40}", job["metadata"]["name"])
    for file in (tmp_path / "out").iterdir():
        assert not re.search("[\x1b\u202e]|^second", file.read_text("utf-8"), re.MULTILINE), (
            file.name
        )
    (pod,) = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    assert pod["resources"] == {"limits": {"amd.com/gpu": "8"}}


def test_the_driver_of_a_ray_job_starts_torchrun_on_every_node(tmp_path):
    folder = tmp_path / "out"
    assert saved(folder, "--as", "RayJob") == 0
    job, data = YAML(typ="safe").load_all((folder / "rayjob.yaml").read_text())
    ray = """
import types
class util: get_node_ip_address = staticmethod(lambda: "10.0.0.1")
class Node:
    def __init__(self, kind): self._one = kind()
    def __getattr__(self, name): return types.SimpleNamespace(remote=getattr(self._one, name))
def init(): pass
def remote(num_gpus): return lambda kind: types.SimpleNamespace(remote=lambda: Node(kind))
def get(said): return said
"""
    (tmp_path / "ray.py").write_text(ray)
    (tmp_path / "driver.py").write_text(data["data"]["start_nodes.py"])
    environment = {"PATH": programs(tmp_path, tmp_path / "seen"), "PYTHONPATH": str(tmp_path)}
    words = demand_of(job).words
    assert words[:2] == ("python", "/etc/mofa/start_nodes.py")
    subprocess.run(
        [sys.executable, tmp_path / "driver.py", *words[2:]], env=environment, check=True
    )
    calls = (tmp_path / "seen").read_text().split("\0--nnodes=8\0")
    assert len(calls) == 9
    assert sorted(call.split("\0")[1] for call in calls[1:]) == [
        f"--node-rank={rank}" for rank in range(8)
    ]
    assert "--master-addr=10.0.0.1" in calls[1]


@pytest.mark.parametrize(
    "words, text",
    [
        (["--as", "Deployment"], "known: JobSet, PyTorchJob, RayJob, TrainJob"),
        (
            ["--framework", "any"],
            "--save-dir: 'framework any' cannot be right; say for which trainer",
        ),
    ],
)
def test_what_cannot_be_saved_is_one_line_and_no_folder(words, text, tmp_path, capsys):
    assert saved(tmp_path / "out", *words) == 2
    printed = capsys.readouterr()
    assert text in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_train_job_has_no_place_for_a_file(tmp_path, capsys):
    assert saved(tmp_path / "out", "--as", "TrainJob", framework="deepspeed", layout=DEEPSPEED) == 2
    assert "a TrainJob has no place for the file ds_config.json" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_what_goes_with_one_is_refused(capsys):
    assert main(["advise", *JOB, "--overwrite"]) == 2
    assert "--overwrite: it goes with --save-dir FOLDER" in capsys.readouterr().err


def test_a_folder_that_holds_something_is_left_alone_unless_somebody_allows_it(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(BadFile, match="is not empty; name a new folder, or say --overwrite"):
        files.check_folder(tmp_path, overwrite=False)
    files.check_folder(tmp_path, overwrite=True)
    files.write_folder(tmp_path, {"a": "1", "b": "2"}, programs=["b"])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "mine": "mine",
        "a": "1",
        "b": "2",
    }
    assert [os.access(tmp_path / name, os.X_OK) for name in "ab"] == [False, True]
    with pytest.raises(BadFile, match="is not empty"):
        files.check_folder(tmp_path / "mine", overwrite=True)
    with pytest.raises(BadFile, match="the folder above it is not there"):
        files.check_folder(tmp_path / "no" / "out", overwrite=False)


@pytest.mark.parametrize("before", [None, {}, {"a": "old"}], ids=["new", "empty", "full"])
def test_what_cannot_be_written_whole_is_not_written(before, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    if before is not None:
        files.write_folder(folder, before)

    def full(path, text, write=files.write_text):
        if text == "2":
            raise OSError(28, "No space left on device")
        write(path, text)

    monkeypatch.setattr(files, "write_text", full)
    with pytest.raises(BadFile, match="cannot be written: no space left on device"):
        files.write_folder(folder, {"a": "1", "b": "2"})
    assert [path.name for path in tmp_path.iterdir()] == ([] if before is None else ["out"])
    assert {path.name: path.read_text() for path in folder.glob("*")} == (before or {})
