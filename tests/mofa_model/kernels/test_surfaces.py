"""Shipped surfaces are what they say: bounded by the peak, growing with every size, the same bits
alone and in a block.
"""

import json

import numpy as np
import pytest

from mofa_model import presets
from mofa_model.cli import main
from mofa_model.errors import BadFile, UnknownName
from mofa_model.kernels import OPERATORS, CallWork, Sheet, Surface, Timer
from mofa_model.kernels.surface import Law
from mofa_model.presets.kernels import VARIABLE, from_text, kernels, relative

MEASURED = ("a100-80gb-sxm", "h100-80gb-sxm", "b200-180gb-sxm", "b300-sxm", "gb200", "gb300")
SIZES = {
    "m": (64, 32768), "n": (256, 65536), "k": (256, 65536), "tokens": (256, 16384), "hidden": (1024, 8192),
    "intermediate": (512, 16384), "topk": (8, 8), "experts": (256, 256), "tp": (1, 1), "ep": (1, 64), "matrices": (3, 3),
    "batch": (1, 64), "sequence": (128, 16384), "heads": (8, 96), "kv_heads": (1, 8), "window": (128, 8192),
    "channels": (1024, 32768), "k_heads": (16, 16), "k_dim": (128, 128), "v_heads": (2, 64), "v_dim": (128, 128),
    "width": (256, 65536), "size": (512, 2**29), "ranks": (2, 8), "multiprocessors": (20, 20),
}  # fmt: skip
FALLS = {"hyper-connection": 0.08, "convolution": 0.08, "sparse-block": 0.05, "scan": 0.04}
"""How far a time of an operator with few measured calls, which jump between kernels, may fall where
a size grows; others 0.1 %.
"""


def drawn(timer, seed, count=400):
    names = timer.work.__code__.co_varnames[
        : timer.work.__code__.co_argcount + timer.work.__code__.co_kwonlyargcount
    ]
    random = np.random.default_rng(seed)
    return {
        name: np.round(np.exp2(random.uniform(*np.log2(SIZES[name]), count)))
        for name in names
        if name not in timer.surface.fixed_sizes
    }


def timers(device):
    held = kernels(device)
    return {key: held.timer(*key) for key in held.surfaces}


@pytest.mark.parametrize("device", MEASURED)
def test_no_call_beats_the_peak_and_none_shrinks_where_a_size_grows(device):
    fallen = {}
    for (operator, form), timer in timers(device).items():
        sizes = drawn(timer, 3)
        seconds = timer.seconds(**sizes)
        work = timer.work(**timer.surface.fixed_sizes, **sizes)
        assert np.all(seconds * timer.sheet.peak >= work.flops * (1.0 - 1e-12))
        for name in OPERATORS[operator].slower_with:
            grown = timer.seconds(**sizes | {name: sizes[name] * 1.3})
            fallen[operator, form, name] = float(np.max(1.0 - grown / seconds))
    assert {key: fall for key, fall in fallen.items() if fall > FALLS.get(key[0], 1e-3)} == {}


def test_a_call_alone_has_the_bits_that_it_has_in_a_block():
    for timer in timers("h100").values():
        sizes = drawn(timer, 5, 33)
        block = timer.seconds(**sizes)
        alone = [
            timer.seconds(**{name: float(values[i]) for name, values in sizes.items()})
            for i in range(33)
        ]
        assert np.asarray(alone).tolist() == np.broadcast_to(block, 33).tolist()


def test_a_large_product_takes_what_was_measured():
    """Table of levels: BF16 with m of 4,096 and more reaches 788 TFLOP/s on an H100, 1,554 on
    a B200.
    """
    for device, rate in (("h100", 788e12), ("b200", 1554e12), ("gb300", 1903e12)):
        seconds = kernels(device).timer("gemm", "bf16").seconds(m=8192, n=8192, k=8192)
        assert 2.0 * 8192**3 / seconds == pytest.approx(rate, rel=0.08)


def test_a_relative_stands_in_and_is_scaled_by_the_data_sheets():
    own, lent = kernels("h100").timer("cast", CAST), kernels("h200").timer("cast", CAST)
    assert relative("h200") == "h100-80gb-sxm"
    assert lent.surface is own.surface
    ratio = own.seconds(tokens=65536, width=16384) / lent.seconds(tokens=65536, width=16384)
    assert ratio == pytest.approx(4800 / 3350, rel=0.03)
    assert kernels("mi300x").surfaces == {}


CAST = "trtllm static_quantize_e4m3_per_tensor"


def toy():
    return Surface(
        law=Law(start=1e-5, matrix=0.5, halves=(100.0,)),
        knots=((64.0, 512.0), (1.0, 2.0), (1.0, 2.0)),
        corrections=np.zeros((2, 2, 2)),
        format="bf16",
        fixed_sizes={"width": 2.0},
        rows=9,
        source="a toy",
    )


def test_a_law_is_start_and_work_over_its_share_of_the_peak():
    """1e12 operations at half of 1e15 a second, 1.1 times as long for the half of 100 in 1,000: 2.2
    ms and the start.
    """
    sheet = Sheet(peak=1e15, memory=1e12, link=1e11)
    timer = Timer(
        work=lambda at, width: CallWork(
            axis_values=(at, 1.0, 1.0), flops=1e12, output_elements=1e9
        ),
        surface=toy(),
        sheet=sheet,
    )
    assert timer.seconds(at=1000.0) == pytest.approx(2.2e-3 + 1e-5, rel=1e-3)


def test_messages_around_a_ring_wait_for_each_other():
    """An all-gather on a GB200 told by 2 and 4 ranks: 8.2 us and 1.3 us a step make 8 ranks wait
    17.3 us (B200: 16.2 measured).
    """
    law, sheet = Law(start=8.2e-6, step=1.3e-6), Sheet(peak=1e15, memory=1e12, link=9e11)
    gather, reduce = OPERATORS["all-gather"].work, OPERATORS["all-reduce"].work
    assert law.seconds(gather(512.0, 8.0), sheet) == pytest.approx(17.3e-6, rel=1e-3)
    assert law.seconds(reduce(512.0, 8.0), sheet) == pytest.approx(26.4e-6, rel=1e-3)


def test_a_rank_of_few_experts_still_reads_every_token():
    """16,384 tokens of 7,168 are 470 MB in and out, where 512 rows are 28 and the one expert of 256
    that is here is 88.
    """
    sizes = {
        "hidden": 7168.0,
        "intermediate": 2048.0,
        "topk": 8.0,
        "experts": 256.0,
        "tp": 1.0,
        "matrices": 3.0,
    }
    work = OPERATORS["grouped-gemm"].work(tokens=16384.0, ep=256.0, width=2.0, **sizes)
    assert work.memory_bytes == pytest.approx(469.8e6 + 28.3e6 + 88.1e6, rel=1e-3)


def document():
    one = {
        "operator": "gemm",
        "form": "bf16",
        "format": "bf16",
        "given": {"width": 2.0},
        "rows": 9,
        "source": "a toy",
    }
    one |= {
        "law": {"start": 1e-5},
        "knots": [[64, 512], [1, 2], [1, 2]],
        "corrections": [0, 1000, -500, 0, 0, 0, 0, 0],
    }
    return {"device": "h100-80gb-sxm", "surfaces": [one]}


def test_a_file_of_surfaces_is_read_in_octaves():
    found = from_text(json.dumps(document()), "x.json", "h100-80gb-sxm")
    assert found["gemm", "bf16"].corrections[0].tolist() == [[0.0, 1.0], [-0.5, 0.0]]


@pytest.mark.parametrize(
    "change, told",
    [
        ({"operator": "gemv"}, "operator 'gemv'"),
        ({"knots": [[1], [1, 2], [1, 2]]}, "ascending numbers"),
        ({"corrections": [0] * 7}, "cannot reshape"),
        ({"law": {"strat": 1}}, "strat"),
    ],
)
def test_a_file_that_is_no_file_of_surfaces_is_refused_in_one_line(change, told):
    given = document()
    given["surfaces"][0] |= change
    with pytest.raises(BadFile, match=told):
        from_text(json.dumps(given), "x.json", "h100-80gb-sxm")


def test_surfaces_of_ones_own_stand_above_the_shipped_ones(tmp_path, monkeypatch):
    (tmp_path / "h100-80gb-sxm.json").write_text(json.dumps(document()))
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert kernels("h100").surfaces["gemm", "bf16"].source == "a toy"
    assert kernels("h200").surfaces["gemm", "bf16"].source == "a toy"
    assert ("causal-attention", "bf16 128") in kernels("h100").surfaces


def test_unknown_operators_and_forms_are_named():
    with pytest.raises(UnknownName, match="gemm"):
        kernels("h100").timer("gem", "bf16")
    with pytest.raises(UnknownName, match="fp8-rowwise"):
        kernels("h100").timer("gemm", "fp8-row")


def test_the_verb_lists_devices_surfaces_and_prices_a_call(capsys):
    assert main(["presets", "kernels", "--json"]) == 0
    rows = {row["device"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["h200-141gb-sxm"]["measured_on"] == "h100-80gb-sxm"
    assert set(MEASURED) <= set(rows) <= set(presets.names("devices"))
    assert main(["presets", "kernels", "b200", "-o", "csv"]) == 0
    assert "Apache-2.0" in capsys.readouterr().out
    assert (
        main(["presets", "kernels", "h100", "--call", "gemm bf16 m=8192 n=8192 k=8192", "--json"])
        == 0
    )
    (time, *_) = json.loads(capsys.readouterr().out)["rows"]
    assert time["value"] == pytest.approx(1.4e-3, rel=0.05)


@pytest.mark.parametrize(
    "words, told",
    [
        (["mi300x"], "nobody measured its kernels"),
        (["--call", "gemm bf16 m=1 n=1 k=1"], "name a device"),
        (
            ["h100", "--call", "gemm bf16 m=4096 n=4096"],
            "missing 1 required positional argument: 'k'",
        ),
        (["h100", "--call", "gemm bf16 m=x n=1 k=1"], "give a number"),
        (["h100", "--call", "gemm bf16 m=-1 n=1 k=1"], "above zero"),
        (["h100", "--call", "gemm bf17 m=1 n=1 k=1"], "bf17"),
    ],
)
def test_a_call_that_cannot_be_is_refused_in_one_line(capsys, words, told):
    assert main(["presets", "kernels", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
