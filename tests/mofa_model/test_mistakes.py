"""What people type wrongly: one line on standard error that names the field, the value and what
would be right; exit code 2.
"""

from pathlib import Path

import pytest

from mofa_model.cli import main

JOB = "--model llama3-8b --gpu h100 --gpus 16 --global-batch 64 --seq 8192"
RUN = "--nodes 64 --step 10s"
EXAMPLE = Path(__file__).parents[2] / "examples" / "llama3-405b.yaml"
MISTAKES = [  # words, what is wrong, its value, what would be right
    ("advize", "verb", "advize", "advise"),
    (
        f"advise {JOB} --precision fp8",
        "--precision",
        "fp8",
        "fp8-delayed, fp8-current, fp8-tensorwise",
    ),
    (
        f"advise {JOB} --model gemma3-26b",
        "--model",
        "gemma3-26b",
        "did you mean gemma3-12b or gemma3-27b",
    ),
    (f"advise {JOB} --model grok-1", "--model", "grok-1", "--model config.json"),
    (f"advise {JOB} --model nowhere.json", "nowhere.json", "nowhere.json", "o such file"),
    (f"advise {JOB} --gpu h100sxm", "--gpu", "h100sxm", "did you mean h100-80gb-sxm"),
    (f"advise {JOB} --gpus 12", "--gpus", "12", "nodes of 8"),
    (f"advise {JOB} --nodes 2", "--gpus", "16", "not both"),
    (f"advise {JOB} --framework megatorn", "--framework", "megatorn", "megatron"),
    (f"advise {JOB} --stack torchtitn", "--stack", "torchtitn", "torchtitan"),
    (f"advise {JOB} --scale-out slingshoot", "--scale-out", "slingshoot", "slingshot11"),
    (f"advise {JOB} --seq 8kk", "--seq", "8kk", "2048"),
    (f"advise {JOB} --headroom 120", "--headroom", "120", "below 100"),
    (f"advise {JOB} --top=-1", "--top", "-1", "0 to 100"),
    (f"advise {JOB} --objective speed", "--objective", "speed", "throughput"),
    (f"advise {JOB} --lift TooFewBatches", "lift", "TooFewBatches", "TooFewMicroBatches"),
    (f"advise {JOB} --constraint optimizer=adam", "constraint.optimizer", "adam", "zero3"),
    (f"advise {JOB} --constraint tpp=4", "constraint", "tpp", "tp"),
    (f"advise {JOB} --constraint tp", "constraint", "tp", "tp=8"),
    (f"advise {JOB} --current tp4,pp3", "--current", "12", "16 devices"),
    (f"advise {JOB} --current tp4,fast", "--current", "fast", "known"),
    (f"advise {JOB} --planned tp4,fast", "--planned", "fast", "known"),
    (f"advise {JOB} --current tp4 --planned tp8", "--planned", "tp8", "did not run yet"),
    (f"advise {JOB} --failure-rate -1", "--failure-rate", "-1", "0 to"),
    (
        f"advise {JOB} --checkpoint-bandwidth 2",
        "--checkpoint-bandwidth",
        "2",
        "is it '2 Gbit/s' or '2 GB/s'?",
    ),
    (f"advise {JOB} --checkpoint-size=", "checkpoint-size", "", "give it a value"),
    ("advise nowhere.yaml", "nowhere.yaml", "nowhere.yaml", "o such file"),
    (f"advise {EXAMPLE} --precision mxfp8", "--precision", "llama3-405b.yaml", "write it there"),
    (f"advise {EXAMPLE} --sync", "--sync", "llama3-405b.yaml", "write it there"),
    ("annotate nowhere.yaml", "nowhere.yaml", "nowhere.yaml", "o such file"),
    (f"explain {JOB} --strategy tp=8,tp=4", "--strategy.tp", "4", "once"),
    (f"explain {JOB} --strategy recompute(attn)", "--strategy.recompute", "attn", "core_attn"),
    (f"explain {JOB} --strategy tp4 --plot a.pdf", "--plot", "a.pdf", ".svg or .png"),
    ("ettr --nodes 0 --step 10s", "--nodes", "0", "1 to"),
    ("ettr --nodes 64 --step 10", "--step", "10", "is it '10 s', '10 min'"),
    (f"ettr {RUN} --rate -1", "--rate", "-1", "0 to"),
    (f"ettr {RUN} --failures 0 --node-days 0", "--node-days", "0", "from"),
    (f"ettr {RUN} --failures 3", "--failures", "3", "--node-days"),
    (f"ettr {RUN} --save=-2s", "--save", "-2s", "zero or more"),
    (f"ettr {RUN} --class pod:0.5:60s", "--class", "0.5", "add to one"),
    (f"ettr {RUN} --profile h100-west", "--profile", "h100-west", "h100-east"),
    (f"simulate {RUN} --runs 0", "--runs", "0", "1 to 100000"),
    (f"simulate {RUN} --every 0", "--every", "0", "1 or more"),
    ("rates --failures 5 --node-days 0", "--node-days", "0", "5 failures"),
    ("rates --failures 5", "--node-days", "", "node-days"),
    ("rates --failures -5 --node-days 9", "--failures", "-5", "from 0"),
    ("rates --failures 5 --node-days 9 --level 90", "--level", "90", "between 0 and 1"),
    ("rates --count pod:3 --node-days 9", "--count", "pod:3", "CLASS=NUMBER"),
    (f"sweep {JOB} --vary gpuss=8,16", "--vary", "gpuss", "gpus"),
    (f"sweep {JOB} --vary seq=8kk", "--seq", "8kk", "2048"),
    (f"sweep {JOB} --vary mbs=1 --y speed", "--y", "speed", "step_seconds"),
    ("calibrate --from-runs nowhere.csv", "nowhere.csv", "nowhere.csv", "o such file"),
    ("profile --gpu h100 --storage Disk=1GB/s", "--storage", "Disk", "Remote"),
    ("presets h101", "presets", "h101", "did you mean h100-80gb-sxm"),
    (
        f"advise {JOB} --gpu p5.49xlarge",
        "--gpu",
        "p5.49xlarge",
        "did you mean p5.4xlarge or p5.48xlarge",
    ),
    (f"advise {JOB} --risk ten", "--risk", "ten", "give a number"),
    (f"advise {JOB} --risk 10", "risk", "10", "between 0 and 1"),
    (f"explain {JOB} --strategy tp=2 --model {'a' * 300}", "--model", "aaa", "known"),
    ("presets devices h100sxm", "device", "h100sxm", "h100-80gb-sxm"),
]

NUMBERS = ("0", "-1", "inf", "-inf", "nan", "1e-300", "1e300", "1e18", "0.5", "")
TIMES = ("0s", "-1s", "1e-300s", "1e300s", "inf", "")
SIZES = ("0B", "-1B", "1e300B", "inf", "")
BANDWIDTHS = ("0GB/s", "-1GB/s", "1e300GB/s", "1e-300GB/s", "")
JOBS = {
    "--nodes": NUMBERS, "--step": TIMES, "--rate": NUMBERS, "--prior-weight": NUMBERS, "--mttr": TIMES,
    "--failures 3 --node-days": NUMBERS, "--node-days 9 --failures": NUMBERS, "--save": TIMES,
    "--save 1s --copy": TIMES, "--copy 9s --slowdown": NUMBERS, "--spares": NUMBERS, "--queue": TIMES,
    "--spares 2 --repair": TIMES, "--gpus-per-node": NUMBERS, "--storage r:2GB/s --checkpoint-size": SIZES,
    "--storage r:2GB/s --checkpoint-size 1TB --shards": NUMBERS, "--interval": NUMBERS, "--every": NUMBERS,
}  # fmt: skip
OPTIONS = {
    f"ettr {RUN}": JOBS | {"--level": NUMBERS, "--curve": NUMBERS, "--total-steps": NUMBERS, "--window": TIMES}
    | {"--total-steps 1000 --deadline": TIMES, "--scaling": NUMBERS},
    f"simulate {RUN} --runs 3 --duration 1d": JOBS
    | {"--runs": ("0", "-1", "0.5"), "--seed": NUMBERS, "--timeline": NUMBERS, "--duration": ("0s", "-1s", "inf")},
    "rates --failures 3 --node-days 300": dict.fromkeys(("--failures", "--node-days", "--possible-node-days", "--assumed", "--prior-weight"), NUMBERS),
    f"advise {JOB} --constraint pp=1 --constraint cp=1 --constraint tp=1": {
        "--failure-rate": NUMBERS, "--checkpoint-bandwidth": BANDWIDTHS, "--checkpoint-size": SIZES,
        "--scale-out": BANDWIDTHS, "--host-memory": SIZES, "--headroom": NUMBERS, "--oversubscription": NUMBERS,
        "--tokens": NUMBERS, "--gpus": NUMBERS, "--global-batch": NUMBERS, "--seq": NUMBERS, "--top": NUMBERS,
    },
}  # fmt: skip


def answered(words, capsys):
    try:
        code = main(words)
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    "words, field, value, right", MISTAKES, ids=[words for words, *_ in MISTAKES]
)
def test_a_mistake_is_one_line_that_names_field_value_and_what_is_right(
    words, field, value, right, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, out, err = answered(words.split(), capsys)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert field in err
    assert value in err
    assert right in err
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    "verb, option", [(verb, option) for verb, options in OPTIONS.items() for option in options]
)
def test_zeros_and_infinities_are_answered_or_refused_and_never_warned_of(verb, option, capsys):
    """Warnings are errors here, and an error of numpy would be exit code 1."""
    for value in OPTIONS[verb][option]:
        words = [*verb.split(), *f"{option}={value}".split()]
        code, out, err = answered(words if value else [*verb.split(), *option.split(), ""], capsys)
        assert code in {0, 2, 3}, f"{value}: {err}"
        assert "warning" not in err.lower(), value
        if code == 2:
            assert (out, err.count("\n")) == ("", 1), value
            name = option.split()[-1].removeprefix("--")
            assert name in err.replace("_", "-"), f"{value}: {err}"
        else:
            assert value not in {"-1", "-inf", "nan", "-1s", "-1B", "-1GB/s", ""}, value
            assert " nan" not in out.lower(), value
