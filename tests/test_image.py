"""The operator's image: what it installs is known, it is built as a person builds it, and it
answers in a container.

Where podman and mmdebstrap are, the image is really built, on a base of Debian's packages that is
made once a machine; elsewhere the tests that need it are skipped, and say what is missing.
"""

import json
import re
import runpy
from pathlib import Path

import pytest
from mofa_local import images

ROOT = Path(__file__).parents[1]
MOST = 250e6
"""Size above the base. [B]"""
CONFINED = ("--network=none", "--memory=512m", "--read-only", "--tmpfs=/tmp", "--cap-drop=all")
QUESTION = ("--model=llama3.1-8b", "--gpus=16", "--gpu=h100", "--global-batch=64", "--seq=4096")
RUN = ("--nodes=256", "--step=11s")
LAYOUT = "--strategy=tp=8,dp=2"


def steps():
    """Each instruction of the Dockerfile with its arguments."""
    bare = re.sub(
        r"^#.*\n", "", (ROOT / "operator" / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE
    )
    lines = [line for line in re.sub(r"\\\n\s*", "", bare).splitlines() if line.strip()]
    return [tuple(line.split(None, 1)) for line in lines]


@pytest.fixture(scope="session")
def image():
    """The name of the image of this tree."""
    try:
        images.base_image()
    except images.NoImages as missing:
        pytest.skip(f"no image can be built here: {missing}")
    return images.advisor_image(ROOT)


def run(image, *words, check=True, options=()):
    return images.podman("run", "--rm", *CONFINED, *options, image, *words, check=check)


def test_whatever_the_image_installs_is_locked_by_its_hash():
    installs = [
        one
        for instruction, rest in steps()
        if instruction == "RUN"
        for one in rest.split("&&")
        if " install " in one
    ]
    assert len(installs) == 3
    for one in installs:
        assert "--require-hashes" in one or "--no-deps /tmp/wheel/" in one, one
    for name in re.findall(r"-r /tmp/(\S+)", " ".join(installs)):
        locked = re.findall(
            r"^[a-z0-9].*==.*$", (ROOT / "requirements" / name).read_text("utf-8"), re.MULTILINE
        )
        assert locked
        assert all(line.rstrip().endswith("\\") for line in locked), (
            "each is followed by its hashes"
        )


def test_docker_build_does_not_stop_at_a_file_that_dockerignore_leaves_out():
    copied = [
        source
        for instruction, rest in steps()
        if instruction == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    ]
    let_in = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.MULTILINE)
    assert "requirements/build.txt" in copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(source == one or source.startswith(f"{one}/") for one in let_in), source


def test_what_the_product_imports_of_large_packages_stays_in_the_image():
    used = set(runpy.run_path(str(ROOT / "operator" / "slim.py"))["USED"])
    wanted = re.compile(
        rf"^ *from ({'|'.join({name.partition('.')[0] for name in used})})(\S*) import (.+)$",
        re.MULTILINE,
    )
    asked = {
        f"{package}{inner or '.' + name}"
        for folder in ("mofa_model", "operator/mofa_operator")
        for path in (ROOT / folder).rglob("*.py")
        for package, inner, names in wanted.findall(path.read_text("utf-8"))
        for name in names.split(", ")
    }
    assert asked == used


@pytest.mark.slow
def test_the_image_answers_read_only_in_half_a_gigabyte_without_a_network_and_is_small(image):
    told = json.loads(run(image, "advise", *QUESTION, "--json").stdout)
    assert told["gpus"] == 16
    assert told["strategy"].startswith("tp=")
    above = images.size(image) - images.size(images.base_image())
    assert above <= MOST, f"{above / 1e6:.0f} MB above its base"


@pytest.mark.slow
def test_the_image_reviews_a_script_against_the_one_that_it_replaces(image, tmp_path):
    text = """#!/bin/bash
#SBATCH -N 4 --gpus-per-node=h100:8
srun torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 \\
    --num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 \\
    --swiglu --bf16 --tokenizer-model meta-llama/Llama-3.1-8B --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 \\
    --micro-batch-size 1 --global-batch-size 256 --sequence-parallel --use-distributed-optimizer
"""
    tmp_path.chmod(0o755)  # the image's user is not root
    (tmp_path / "before.sbatch").write_text(text)
    (tmp_path / "after.sbatch").write_text(text.replace("parallel-size 2", "parallel-size 8"))
    mounted = (f"--volume={tmp_path}:/launches:ro", "--workdir=/launches")
    words = ("check", "--base", "before.sbatch", "after.sbatch", "-o", "json")
    done = run(image, *words, check=False, options=mounted)
    assert [one["rule"] for one in json.loads(done.stdout)["findings"]] == ["slower"], done.stderr
    assert done.returncode == 5


@pytest.mark.soak
def test_every_verb_works_in_the_image(image):
    listed = re.search(r"verbs:\n(.*?)\n\n", run(image, "--help").stdout, re.DOTALL)[1]
    verbs = re.findall(r"^  (\w+)", listed, re.MULTILINE)
    assert {"advise", "annotate", "calibrate", "observe", "operator", "rates"} <= set(verbs)
    for verb in verbs:
        assert run(image, verb, "--help").stdout.startswith("usage: mofa"), verb
    mounted = (
        f"--volume={ROOT / 'examples'}:/examples:ro",
        f"--volume={ROOT / 'tests' / 'data'}:/data:ro",
    )
    for words in (
        ("annotate", "/examples/llama3-405b.yaml"),
        ("advise", *QUESTION),
        ("explain", *QUESTION, LAYOUT),
        ("sweep", *QUESTION, "--vary", "gpus=8,16"),
        ("ettr", *RUN),
        ("simulate", *RUN, "--runs=2", "--duration=1d"),
        ("rates", "--failures=419", "--node-days=110592"),
        ("presets", "models"),
        ("completion", "bash"),
    ):
        done = run(image, *words, check=False, options=mounted)
        assert done.returncode == 0, f"{words}\n{done.stderr}"
    for words in (("doctor",), ("pools",), ("top",), ("operator",)):
        done = run(image, *words, check=False)
        assert done.returncode == 4, (
            f"{words}\n{done.stderr}"
        )  # a source is unreachable: there is no cluster
        assert "there is no kubeconfig" in done.stderr
