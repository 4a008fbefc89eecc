"""Which GPUs a fine-tune needs, whether it fits and with what, how long it takes and what
it costs.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from http.client import HTTPConnection

import pytest

import mofa_model
from mofa_model import presets, units
from mofa_model.advice import SURE, best_size, sizes_of
from mofa_model.cli import main
from mofa_model.errors import InputError, NoFeasibleStrategy
from mofa_model.verbs.ui_server import DeskServer

JOB = {"model": "llama3-8b", "examples": "10k", "length": 500}


def asked(**more):
    return mofa_model.which(**{**JOB, **more})


def test_tokens_are_examples_times_their_length_times_epochs():
    assert asked(epochs=3, gpu="l4").run_tokens == 10_000 * 500 * 3
    assert mofa_model.which(model="llama3-8b", tokens="5M", epochs=3, gpu="l4").run_tokens == 15e6


def test_the_cost_is_the_time_times_the_price_of_the_whole_machine():
    first = asked(gpu="a10g").machine_choices[0]
    node = presets.instance(first.machine.name)
    hourly = units.parse(node["price"], "USD/s") * units.HOUR
    assert first.cost.target == pytest.approx(first.duration.target / units.HOUR * hourly)
    assert first.machine.as_of == node["priced"]


def test_all_gpus_of_a_machine_that_is_paid_are_used():
    found = asked(gpu="b200").machine_choices
    assert {(one.machine.name, one.machine.gpus) for one in found} == {("BM.GPU.B200.8", 8)}
    few = asked(gpu="b200", by="hardware").machine_choices[0]
    assert few.machine.gpus == 1, "where hardware counts, fewer of them"


def test_a_price_of_ones_own_is_that_of_each_gpu():
    found = asked(gpu="rtx-4090", price="0.5 USD/h")
    for one in found.machine_choices:
        hours = one.duration.target / units.HOUR
        assert one.cost.target == pytest.approx(hours * 0.5 * one.machine.gpus)
    assert asked(gpu="rtx-4090").machine_choices[0].cost is None, "nobody read a price of it"


def test_least_money_least_time_and_least_hardware_are_what_they_say():
    gpus = "a10g,l4,h100"
    money = asked(gpu=gpus, method="qlora").machine_choices
    assert [one.cost.target for one in money] == sorted(one.cost.target for one in money)
    time = asked(gpu=gpus, method="qlora", by="time").machine_choices
    assert [one.duration.target for one in time] == sorted(one.duration.target for one in time)
    assert time[0].duration.target <= money[0].duration.target
    fewest = asked(gpu=gpus, method="qlora", by="hardware").machine_choices[0]
    assert (fewest.machine.gpus, fewest.machine.device) == (1, "a10g"), "24 GB less correction"


def test_an_8b_model_is_adapted_on_one_card_of_24_gb_and_70b_on_several():
    one = mofa_model.which(model="llama3-8b", tokens="1M", gpu="rtx-4090", by="hardware")
    assert one.machine_choices[0].machine.gpus == 1
    assert one.machine_choices[0].fits >= 0.9
    many = mofa_model.which(model="llama3-70b", tokens="1M", gpu="rtx-4090", by="hardware")
    assert many.machine_choices[0].machine.gpus == 2, (
        "weights wait in main memory, as fsdp_qlora has it"
    )
    conditions = " ".join(many.machine_choices[0].advice.caveats)
    assert "in the main memory of a node; nobody said how much there is" in conditions
    assert many.machine_choices[0].recipe.method == "qlora"


def test_what_makes_it_fit_is_told_with_what_it_saves_and_costs_the_cheapest_first():
    first = mofa_model.which(
        model="llama3-70b", tokens="1M", gpu="rtx-4090", by="hardware"
    ).machine_choices[0]
    costs = [setting.costs for setting in first.settings]
    assert costs == sorted(costs)
    assert all(setting.saved_memory > 0 for setting in first.settings)
    words = " ".join(setting.words for setting in first.settings)
    assert "NF4" in words
    assert "recomputed" in words


def test_where_nothing_fits_the_answer_says_what_is_lacking_and_the_command_ends_with_three(capsys):
    found = mofa_model.which(model="llama3.1-405b", tokens="1M", gpu="t4", most_gpus=1)
    assert found.machine_choices == ()
    assert "on 1 x t4" in found.nearest
    with pytest.raises(NoFeasibleStrategy, match="1 x t4"):
        found.raise_for_status()
    words = ["--model", "llama3.1-405b", "--tokens", "1M", "--gpu", "t4", "--max-gpus", "1"]
    assert main(["which", *words]) == 3
    capsys.readouterr()


def test_the_command_the_function_and_the_page_say_the_same(capsys):
    words = ["--model", "llama3-8b", "--examples", "10k", "--length", "500", "--gpu", "a10g"]
    assert main(["which", *words, "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == json.loads(json.dumps(asked(gpu="a10g").to_dict()))
    with DeskServer(0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        page.request("GET", "/which?model=llama3-8b&examples=10k&length=500&gpu=a10g")
        reply = page.getresponse()
        text = reply.read().decode()
        server.shutdown()
    assert reply.status == 200
    assert said["choices"][0]["machine"] in text
    assert "mofa which --model llama3-8b --examples 10k" in text


def test_the_page_opens_no_file_and_tells_beside_its_field_what_cannot_be_right():
    from mofa_model.answers.which_form import which_form

    for values, field in (
        ({"model": "/etc/passwd", "examples": "1k"}, "model"),
        ({"model": "llama3-8b", "examples": "many"}, "examples"),
        ({"model": "llama3-8b", "examples": "1k", "gpu": "h1oo"}, "gpu"),
        ({"model": "llama3-8b"}, "tokens"),
        ({"model": "llama3-8b", "examples": "1k", "method": "ia3"}, "method"),
    ):
        errors = which_form(values).errors
        assert errors, values
        assert field in errors or "" in errors or field == "tokens", errors


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"model": None}, "model: is missing"),
        ({"examples": None}, "tokens: is missing"),
        ({"tokens": "1M"}, "give tokens, or examples"),
        ({"gpu": "tpu-v5e"}, "is a TPU"),
        ({"gpu": "rtx-4091"}, "did you mean"),
        ({"price": "2"}, "USD/h"),
        ({"method": "ia3"}, "lora"),
        ({"by": "luck"}, "money"),
    ],
)
def test_a_question_that_cannot_be_right_is_refused_by_its_field(words, why):
    with pytest.raises(InputError, match=why):
        asked(**{"gpu": "l4", **words})


def test_which_and_the_sizes_of_jobs_make_one_decision():
    """Of one and two A10G the chosen one is what `advice.sizes` chooses, with the same layout, and
    surely fits.
    """
    found = asked(gpu="a10g", method="qlora", by="hardware").machine_choices[0]
    objective = "least-gpus"
    assert found.fits >= SURE
    request = replace(found.request, least_fits=0.0, risk=0.5)
    (alone,) = sizes_of([request], objective)
    assert alone.advice.strategy == found.advice.strategy
    assert best_size([alone, found.sized], objective) is not None


def test_a_fine_tune_is_asked_of_trl_unless_another_trainer_is_named():
    first = asked(gpu="a10g", method="qlora").machine_choices[0]
    assert first.request.framework == "trl"
