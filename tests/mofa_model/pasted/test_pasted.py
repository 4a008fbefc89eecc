"""What people have is recognised by what stands in it, and read with the place of each fact."""

import json
import re
import shlex
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from mofa_model.answers.advise import advise
from mofa_model.answers.advise_tables import LONGEST
from mofa_model.answers.paste_form import paste_form
from mofa_model.answers.pasted import answered
from mofa_model.answers.questions import AdviceQuestion, PasteQuestion
from mofa_model.cli import main, pasted_words
from mofa_model.errors import InputError
from mofa_model.pasted.missing import missing
from mofa_model.pasted.reading import PastedText, read
from mofa_model.pasted.wrapped import RunState, run_seen
from mofa_model.strategy import format_strategy

INPUTS = YAML(typ="safe").load(Path(__file__).with_name("inputs.yaml").read_text("utf-8"))
SCRIPT = INPUTS[0]


@pytest.mark.parametrize("given", INPUTS, ids=lambda one: one["name"])
def test_an_input_of_each_form_is_recognised_and_each_fact_in_it_is_read(given):
    found = read([PastedText(given["text"], given["name"])])
    said = {name: found.facts[name].value for name in given["facts"] if name in found.facts}
    assert (found.kind.value, found.trainer) == (given["kind"], given["trainer"])
    assert said == given["facts"]
    assert missing(found) == given["asks"]


@pytest.mark.parametrize("given", INPUTS, ids=lambda one: one["name"])
def test_a_fact_has_the_line_where_it_stands_or_says_what_it_was_derived_from(given):
    found = read([PastedText(given["text"], given["name"])])
    lines = given["text"].count("\n") + 1
    for name, fact in found.facts.items():
        place = re.match(rf"{re.escape(given['name'])}(:(\d+))?", fact.source)
        assert place or fact.source.startswith("derived: "), (name, fact)
        assert place is None or int(place[2] or 1) <= lines


def test_the_line_of_a_fact_is_that_of_its_option_though_a_variable_gives_the_value():
    found = read([PastedText(SCRIPT["text"], "gpt.sbatch")])
    text = SCRIPT["text"].splitlines()
    for name, word in (("layers", "--num-layers"), ("global_batch", "--global-batch-size")):
        line = int(found.facts[name].source.rpartition(":")[2])
        assert word in text[line - 1]


def test_a_script_and_the_file_that_it_names_are_read_together_with_one_answer():
    script = "torchrun --nnodes 2 --nproc_per_node 8 run_train.py --config-file nano.yaml"
    nano = next(one for one in INPUTS if one["name"] == "nano.yaml")
    found = read([PastedText(script, "x.sh"), PastedText(nano["text"], "nano.yaml")])
    assert found.trainer == "nanotron"
    assert (found.facts["gpus"].value, found.facts["seq"].value) == (16, 2048)
    assert (
        any("gpus" in one or "x.sh" in one for one in found.disagree)
        or found.facts["dp"].value == 2
    )


def test_a_machine_beside_a_model_gives_device_and_number():
    smi = next(one for one in INPUTS if one["name"] == "smi.txt")
    model = next(one for one in INPUTS if one["name"] == "config.json")
    found = read([PastedText(model["text"], "config.json"), PastedText(smi["text"], "smi.txt")])
    assert missing(found) == ["seq", "global_batch"]
    assert found.facts["gpus"].value == 2


def test_two_values_of_one_option_are_a_contradiction_that_is_said():
    text = "torchrun pretrain_gpt.py --seq-length 2048 --seq-length 4096 --num-layers 2"
    found = read([PastedText(text, "x.sh")])
    assert found.facts["seq"].value == 4096
    assert found.disagree == ("seq_length is 2048 by x.sh:1 and 4096 by x.sh:1; the last counts",)


def test_nothing_of_an_input_is_run_and_no_secret_is_echoed(tmp_path, capsys):
    trap = tmp_path / "ran"
    script = tmp_path / "train.sh"
    script.write_text(
        f"touch {trap}; $(touch {trap}); `touch {trap}`\nexport HF_TOKEN=hf_secretsecret1\n"
        "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B"
        " --hf_token hf_secretsecret2 --max_length 4096 --per_device_train_batch_size 1\n"
    )
    python = tmp_path / "train.py"
    python.write_text(
        f"import nemo_run\nopen({str(trap)!r}, 'w')\nx = dict(seq_length=4096, api_key='hf_secretsecret3')\n"
    )
    for path in (script, python):
        main([str(path), "-o", "json"])
        main([str(path), "--gpu", "h100"])
    said = "".join(capsys.readouterr())
    assert not trap.exists()
    assert "hf_secret" not in said


def test_json_has_kind_trainer_facts_with_sources_and_what_is_asked(tmp_path, capsys):
    path = tmp_path / "axo.yml"
    path.write_text(next(one for one in INPUTS if one["name"] == "axo.yml")["text"])
    assert main([str(path), "-o", "json"]) == 2
    said, wrong = capsys.readouterr()
    document = json.loads(said)
    assert (document["kind"], document["trainer"], document["asks"]) == (
        "yaml",
        "axolotl",
        ["gpu", "gpus"],
    )
    assert document["facts"]["seq"] == {"value": 8192, "source": f"{path}:5"}
    assert document["answer"] is None
    assert "--gpu and --gpus: are missing" in wrong


@pytest.mark.parametrize("width", [60, 80, 160])
def test_the_first_answer_has_at_most_twelve_lines_on_any_screen(width):
    for given in (SCRIPT, *(one for one in INPUTS if one["name"] in {"axo.yml", "titan.toml"})):
        question = PasteQuestion(gpu="h200", gpus=None if given is SCRIPT else "128")
        found = answered(question, [PastedText(given["text"], given["name"])])
        lines = found.brief_text(width).splitlines()
        assert len(lines) <= LONGEST
        assert all(len(line) <= width for line in lines if not line.startswith("next"))
        assert [line.split()[0] for line in lines if line[:1].strip()][:3] == [
            "verdict",
            "read",
            "layout",
        ]


def test_the_planned_layout_is_the_one_that_was_read_and_the_answer_says_what_changes():
    found = answered(PasteQuestion(), [PastedText(SCRIPT["text"], "gpt.sbatch")])
    planned = found.answer.advice.current
    layout = planned.strategy
    assert (int(layout.tp), int(layout.pp), int(layout.dp), int(layout.mbs)) == (4, 2, 4, 2)
    assert (planned.is_planned, found.asked.current) == (True, None)
    assert planned.odds.fits < 1.0
    assert re.search(r"(?m)^planned +.*→", found.brief_text(200))


LOG = "iteration 1/9 | elapsed time per iteration (ms): 4020.0\niteration 2/9 | elapsed time per iteration (ms): 4019.0\n"


def test_what_was_advised_and_is_written_is_kept_and_as_sure_to_fit_as_it_was():
    """It fitted with 95 % as the advice and with 85 % once it was written, so each answer changed
    the last one.
    """
    question = AdviceQuestion(
        model="llama3-8b", gpu="h100", gpus="8", sequence_length="8192", global_batch_size="128",
        framework="megatron", precision=("fp8-delayed",),
    )  # fmt: skip
    first = advise.of(question).advice
    again = advise.of(replace(question, planned=format_strategy(first.strategy))).advice
    assert again.strategy == first.strategy
    assert again.current.odds.fits == pytest.approx(first.odds.fits, rel=1e-6)


NO_ROOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB"


def test_a_log_with_steps_shows_that_a_script_runs_and_one_that_ran_out_of_memory_does_not():
    """A written script was told to fit with more than 99 %, though nobody had started it."""
    script = PastedText(SCRIPT["text"], "gpt.sbatch")
    for log, word, fits in ((LOG, "today", 1.0), (f"{LOG}{NO_ROOM}", "failed", 0.0)):
        found = answered(PasteQuestion(), [script, PastedText(log, "train.log")])
        current = found.answer.advice.current
        assert (current.word, current.odds.fits) == (word, fits)
        assert re.search(rf"(?m)^{word} +.*→", found.brief_text(200))
    arguments = "".join(
        f"  {key} ........ {value}\n"
        for key, value in {
            "seq_length": 2048,
            "num_layers": 40,
            "world_size": 32,
            "micro_batch_size": 2,
            "global_batch_size": 128,
        }.items()
    )
    other = answered(PasteQuestion(), [script, PastedText(arguments + LOG, "other.log")])
    assert other.pasted_facts.disagree
    assert other.answer.advice.current.is_planned


def of_eight(**more):
    """A script of Llama 3 8B on eight H100."""
    options = {
        "num-layers": 32, "hidden-size": 4096, "num-attention-heads": 32, "num-query-groups": 8, "ffn-hidden-size": 14336,
        "seq-length": 8192, "global-batch-size": 256, "vocab-size": 128256, "micro-batch-size": 1,
    }  # fmt: skip
    words = " ".join(f"--{key} {value}" for key, value in (options | more).items())
    flags = "--bf16 --swiglu --group-query-attention --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
    head = "#SBATCH --nodes=1 --gres=gpu:h100:8\n"
    return f"{head}torchrun --nproc_per_node 8 pretrain_gpt.py {words} {flags}\n"


def test_a_script_that_would_run_out_of_memory_is_told_so_and_one_that_fits_is_kept():
    found = answered(PasteQuestion(), [PastedText(of_eight(**{"micro-batch-size": 4}), "oom.sh")])
    advice = found.answer.advice
    assert (advice.status.value, advice.kept) == ("Recommended", "")
    assert advice.odds.fits > 0.9
    assert advice.current.odds.fits < 0.1
    assert re.search(r"(?m)^planned +fits with <?\d %; change ", found.brief_text(200))
    best = {
        "tensor-model-parallel-size": int(advice.strategy.tp),
        "micro-batch-size": int(advice.strategy.mbs),
    }
    text = of_eight(**best).replace("--bf16", "--bf16 --sequence-parallel --tp-comm-overlap")
    kept = answered(PasteQuestion(), [PastedText(text, "good.sh")])
    assert kept.answer.advice.kept.startswith("keep what you wrote: ")
    assert kept.brief_text(200).startswith("verdict   keep what you wrote: ")
    assert kept.answer.document["current"]["planned"] is True


def script_that_is_kept():
    """A script whose layout is the best by the model."""
    options = {"tensor-model-parallel-size": 2, "micro-batch-size": 1}
    return of_eight(**options).replace("--bf16", "--bf16 --sequence-parallel --tp-comm-overlap")


KILLED = "    State: Terminated\n      Reason: OOMKilled\n      Exit Code: 137\n"


@pytest.mark.parametrize("log", [NO_ROOM, f"{LOG}{NO_ROOM}", KILLED, "CUDA out of memory"])
def test_a_layout_that_ran_out_of_memory_is_neither_kept_nor_chosen_at_any_door(
    log, tmp_path, monkeypatch, capsys
):
    """A layout was told to be kept, or one that needs more beside it to fit with more than 99 %."""
    text = script_that_is_kept()
    assert answered(PasteQuestion(), [PastedText(text, "x.sh")]).answer.advice.kept
    (tmp_path / "x.sh").write_text(text)
    (tmp_path / "x.log").write_text(log)
    monkeypatch.chdir(tmp_path)
    found = answered(PasteQuestion(), [PastedText(text, "x.sh"), PastedText(log, "x.log")]).answer
    advice, died = found.advice, found.advice.current
    assert (advice.kept, died.word, died.odds.fits) == ("", "failed", 0.0)
    assert advice.strategy != died.strategy
    said = {}
    for door, words in (("file", ["x.sh", "x.log"]), ("stdin", ["-"])):
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(f"{text}\n{log}\n".encode())))
        assert main(["paste", *words, "-o", "json"]) == 0
        said[door] = json.loads(capsys.readouterr().out)["answer"]
    assert main(["advise", "-o", "json", *shlex.split(found.question.command("advise"))[2:]]) == 0
    said["options"] = json.loads(capsys.readouterr().out)
    page = paste_form({"pasted": log}, [PastedText(text, "x.sh")])
    said["page"] = page.answer.answer.document
    for door, told in said.items():
        assert told["current"]["failed"] is True, door
        assert told["strategy"] == found.document["strategy"], door
    is_host = log == KILLED
    assert ("main memory" in advice.explanation) == is_host
    if not is_host:  # the model's estimate of what is chosen is below that of what died
        needs = advice.predicted.memory_bytes.target / advice.learned_memory
        assert needs < died.predicted.memory_bytes.target / advice.learned_memory
        assert advice.learned_memory > 1.0


def test_a_run_that_died_with_a_layout_that_nobody_says_is_told_to_be_left_out():
    texts = [
        PastedText("torchrun --nproc_per_node 8 mine.py --seq 4096\n", "x.sh"),
        PastedText(NO_ROOM, "x.log"),
    ]
    given = {"model": "llama3-8b", "gpu": "h100", "gpus": "8", "global_batch_size": "64"}
    found = answered(PasteQuestion(sequence_length="4096", **given), texts)
    assert found.asked.failed is None
    assert any("nobody says with which layout" in one for one in found.notes)


def test_a_run_of_other_size_is_not_the_one_that_died():
    texts = [PastedText(script_that_is_kept(), "x.sh"), PastedText(NO_ROOM, "x.log")]
    assert answered(PasteQuestion(gpus="16"), texts).asked.failed is None
    assert answered(PasteQuestion(gpus="8"), texts).asked.failed


def test_what_a_script_prints_or_a_comment_warns_of_is_no_run():
    for line in (
        "# 8 gives CUDA out of memory",
        "echo 'CUDA out of memory, lower the batch'",
        "except torch.cuda.OutOfMemoryError:",
        "micro_batch_size: 4  # CUDA out of memory with 8",
    ):
        assert run_seen(line) is RunState.UNSEEN, line
    page = "If it says\nCUDA out of memory\nlower it:\n```bash\ntorchrun t.py\n```\n"
    assert run_seen(page) is RunState.UNSEEN
    assert run_seen(page.replace("torchrun t.py", NO_ROOM)) is RunState.DEVICE_FULL


def test_a_layout_of_a_file_that_is_not_here_is_not_compared_and_a_name_that_says_a_stage_is_not_all_of_it():
    """`--deepspeed_config x.json` was read as replicated states, which do not fit, and pp=4 beside
    it was lost.
    """
    script = (
        "deepspeed --num_gpus 8 train.py --model_name_or_path meta-llama/Llama-3.1-70B --deepspeed FILE"
        " --per_device_train_batch_size 1 --max_length 4096 --bf16 True --pipe_parallel_size 4\n"
    )
    for file, said in (
        ("ds.json", "ds.json says how ranks share their states and is not here"),
        ("zero2-offload.json", "it cannot start, or part of the layout is not stated"),
    ):
        found = answered(
            PasteQuestion(gpu="h100"), [PastedText(script.replace("FILE", file), "x.sh")]
        )
        assert found.answer.advice.current is None, file
        assert any(said in one for one in found.notes), found.notes
    beside = PastedText('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}', "ds.json")
    whole = answered(
        PasteQuestion(gpu="h100"),
        [
            PastedText(
                script.replace("FILE", "ds.json").replace(" --pipe_parallel_size 4", ""), "x.sh"
            ),
            beside,
        ],
    )
    assert whole.answer.advice.current.is_planned


def test_a_shape_in_words_is_a_model_of_as_many_parameters_as_its_config():
    from mofa_model.equations.parameters import total_parameters
    from mofa_model.presets.models import from_config, model_named

    words = "layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256,gated=true"
    llama = {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
    }
    llama |= {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}
    assert total_parameters(model_named(words)) == total_parameters(from_config(llama))


def test_a_verb_goes_before_a_file_and_a_slip_of_the_pen_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("advise").write_text("x")
    Path("train.sh").write_text("torchrun t.py")
    assert pasted_words(["advise", "--help"], {}) == ["advise", "--help"]
    assert pasted_words(["./advise"], {}) == ["paste", "./advise"]
    assert pasted_words(["train.sh"], {}) == ["paste", "train.sh"]
    assert pasted_words(["-"], {}) == ["paste", "-"]
    assert main(["advize"]) == 2
    assert main(["trian.sh"]) == 2
    said = capsys.readouterr().err
    assert "did you mean advise?" in said
    assert "did you mean train.sh?" in said


def test_an_unknown_text_is_refused_with_what_is_read():
    with pytest.raises(InputError, match=r"is nothing that is known here.*nvidia-smi"):
        answered(PasteQuestion(), [PastedText("Dear Sir or Madam, thank you", "letter.txt")])
    with pytest.raises(InputError, match="is empty"):
        answered(PasteQuestion(), [PastedText("  \n", "none.txt")])


def test_the_command_that_is_told_next_writes_the_launch_and_then_the_launch_is_next(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    sizes = ["--gpu=h100", "--gpus=64", "--seq=8192", "--global-batch=512"]
    assert main(["llama3-8b", *sizes]) == 0
    told = capsys.readouterr().out.splitlines()[-1].split()
    assert told[:3] == ["next", "mofa", "paste"]
    assert main(told[2:]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["next", "bash", "out/launch.sh"]
    assert (tmp_path / "out" / "launch.sh").exists()


def test_a_pasted_script_is_saved_with_the_launch_written_into_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("gpt.sbatch").write_text(SCRIPT["text"], "utf-8")
    assert main(["gpt.sbatch", "--gpu", "h100", "--save-dir", "out"]) == 0
    before, after = SCRIPT["text"], Path("out/gpt.sbatch").read_text("utf-8")
    assert "next      sbatch out/gpt.sbatch" in capsys.readouterr().out
    assert before != after
    assert read([PastedText(after, "x.sh")]).facts["interval"].value > 0
    readme = Path("out/README.md").read_text("utf-8")
    assert "- `gpt.sbatch`: yours, with this launch written into it:" in readme


def test_variables_of_what_starts_a_command_leave_its_layout_readable():
    text = (
        "torchrun --nnodes=$SIZE --nproc_per_node=8 pretrain_gpt.py --num-layers 32 --hidden-size 4096"
        " --num-attention-heads 32 --seq-length 4096 --tensor-model-parallel-size 4 --sequence-parallel"
        " --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 128 --bf16"
    )
    question = PasteQuestion(gpu="h100", gpus="32", top=0)
    found = answered(question, [PastedText(text, "x.sh")], launched_by="--save-dir")
    today = found.answer.advice.current.strategy
    assert (today.tp, today.pp, today.dp, today.sequence_parallel) == (4, 4, 2, True)
    assert "pp-overlap=false" in format_strategy(today)
    assert found.script()[1].changes


def test_what_could_not_be_written_into_a_script_is_told_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = SCRIPT["text"].replace("--micro-batch-size", "--deepspeed --micro-batch-size")
    assert "--deepspeed" in text
    Path("gpt.sbatch").write_text(text, "utf-8")
    assert main(["gpt.sbatch", "--gpu", "h100", "--save-dir", "out"]) == 0
    said = "not changed in gpt.sbatch: --deepspeed is told to a fork of Megatron"
    assert said in capsys.readouterr().err


FOREIGN = """\
torchrun --standalone --nproc_per_node 4 pretrain.py --plugin hybrid_parallel --save_interval 10
"""
PLAIN = """\
torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --bf16 --model_max_length 4096 \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --save_steps 500 {} --output_dir out
"""


def left_of(text, **given):
    """What the script with an advice in it leaves, and whether it is as it was."""
    question = PasteQuestion(gpu="h100", **given)
    found = answered(question, [PastedText(text, "x.sh")], launched_by="--save-dir")
    _, changed = found.script()
    return " ".join(changed.left), changed.text == text


def test_the_options_of_one_trainer_are_never_written_into_the_command_of_another():
    given = {"model": "llama3-8b", "sequence_length": "4096", "global_batch_size": "256"}
    left, same = left_of(FOREIGN, launch="megatron", **given)
    assert same
    assert "its command is of a trainer that nobody here knows" in left


FACTORY = """\
llamafactory-cli train --stage sft --model_name_or_path Qwen/Qwen2.5-7B --dataset mine --template qwen \\
  --finetuning_type lora --lora_rank 8 --cutoff_len 2048 --per_device_train_batch_size 1 --bf16 True
"""
FACTORY_FILE = """\
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: full
deepspeed: ds_z2_config.json
dataset: mine
template: qwen
cutoff_len: 4096
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
"""
TUNE = "tune run --nproc_per_node 8 full_finetune_distributed --config {} epochs=2 tokenizer.max_seq_len=4096 2>&1\n"


@pytest.mark.parametrize(
    ("script", "beside", "kept", "told"),
    [
        (FACTORY, "", "--dataset mine", r" \\\n  --disable_gradient_checkpointing true"),
        ("llamafactory-cli train sft.yaml | tee log\n", FACTORY_FILE, "| tee log", r"train sft.yaml (\w+=\S+ )+deepspeed=ds_config.json \|"),
        ('CFG=$1\nllamafactory-cli train "$CFG"\n', FACTORY_FILE, 'train "$CFG" ', r"train \"\$CFG\" (\w+=\S+ )+deepspeed=ds_config.json$"),
        (TUNE.format("llama3_1/8B_full"), "", "epochs=2", r"enable_activation_checkpointing=false 2>&1"),
        (TUNE.format("mine.yaml"), "", "epochs=2", r"batch_size=\d+ gradient_accumulation_steps=\d+ enable_activation_checkpointing=false"),
    ],
)  # fmt: skip
def test_a_fine_tuner_is_told_over_its_file_and_keeps_all_else_it_was_told(
    script, beside, kept, told
):
    """`llamafactory-cli train --stage sft --dataset x` lost both; then such commands were left as
    they were.
    """
    more = [PastedText(beside, "sft.yaml")] if beside else []
    given = {"gpu": "a100", "gpus": "8", "model": "llama3-8b" if "mine" in script else None}
    given |= {} if "factory" in script else {"global_batch_size": "64"}
    question = PasteQuestion(**given, constraints=("optimizer=zero3", "recompute=none"))
    found = answered(question, [PastedText(script, "x.sh"), *more], launched_by="--save-dir")
    _, changed = found.script()
    assert kept in changed.text
    assert re.search(told, changed.text), changed
    assert ("ds_config.json" in changed.files) == ("deepspeed" in changed.text)
    again = answered(question, [PastedText(changed.text, "x.sh"), *more], launched_by="--save-dir")
    assert again.script()[1].text == changed.text


def test_a_recipe_of_torchtune_that_is_not_the_launch_s_is_left_as_it_is():
    script = "tune run full_finetune_single_device --config x.yaml\n"
    given = {"sequence_length": "2048", "global_batch_size": "64"}
    left, same = left_of(script, model="llama3-8b", gpus="8", **given)
    assert same
    assert "its command starts full_finetune_single_device" in left


def test_a_command_of_an_older_release_or_whose_file_is_elsewhere_is_left_as_it_is():
    nemo = (
        "torchrun --nproc_per_node 8 megatron_gpt_pretraining.py trainer.devices=8 model.tensor_model_parallel_size=2"
        " model.micro_batch_size=1 model.global_batch_size=64\n"
    )
    left, same = left_of(nemo, model="llama3-8b", sequence_length="4096")
    assert same
    assert "its command is of NeMo 1" in left
    stands = PLAIN.format("--deepspeed conf/ds.json")
    left, same = left_of(stands, constraints=("optimizer=zero3",))
    assert same
    assert "conf/ds.json says how its ranks share their states" in left


def test_a_script_that_would_do_a_part_of_the_advice_alone_stays_as_it_is():
    """A script with half of the advice and half of its own layout would need other memory
    than either.
    """
    left, same = left_of(PLAIN.format(""), constraints=("optimizer=zero3",))
    assert same
    assert "optimizer=replicated and the advice zero3, which stands in accelerate.yaml" in left
    fsdp = PLAIN.format("--fsdp 'full_shard auto_wrap'")
    left, same = left_of(fsdp, constraints=("optimizer=zero3", "cp=1"))
    assert "the advice" not in left
    assert not same


def test_of_two_scripts_that_each_start_a_training_the_first_is_answered_and_the_other_is_named():
    """Layers of the one and the model of the other made a training that nobody has."""
    other = "torchrun --nproc_per_node 8 sft.py --model_name_or_path Qwen/Qwen2.5-7B --max_length 2048\n"
    found = read([PastedText(SCRIPT["text"], "gpt.sbatch"), PastedText(other, "sft.sh")])
    assert "model" not in found.facts
    assert found.facts["gpus"].value == 32
    assert found.disagree[0] == "sft.sh starts another training, which the answer leaves out"
    named = read(
        [PastedText(SCRIPT["text"] + "bash sft.sh\n", "gpt.sbatch"), PastedText(other, "sft.sh")]
    )
    assert not any("another training" in one for one in named.disagree)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("framework", "colossalai"),
        ("planned", "tp=3"),
        ("current", "tp=5"),
        ("current", "tp=64,pp=9"),
    ],
)
def test_what_an_option_says_is_refused_and_never_left_out(option, value):
    """`--trainer colossalai` was answered for another trainer, with a note."""
    with pytest.raises(InputError, match=f"--{option}"):
        answered(PasteQuestion(**{option: value}), [PastedText(of_eight(), "x.sh")])


def test_a_token_in_a_command_that_is_typed_stands_in_no_question_and_no_next_command(capsys):
    typed = "torchrun --nproc_per_node 8 t.py --model_name_or_path Qwen/Qwen2.5-7B --hf_token hf_secret12 --max_length 64"
    assert main([typed]) == 2
    assert main([f"{typed} --per_device_train_batch_size 1", "--gpu", "h100"]) == 0
    out, err = capsys.readouterr()
    assert "hf_secret" not in out + err
    assert "--hf_token ***" in out.rpartition("next ")[2]
    assert "--hf_token ***" in err


def test_what_torchtitan_logs_before_it_begins_says_its_layout():
    lines = (
        "- INFO - Building device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=8, cp=1, tp=4, ep=1",
        "- INFO - Trainer is initialized with local batch size 2, global batch size 32, sequence length 8192",
        "- INFO - step: 10  loss:  7.8  tps: 6,501", "- INFO - step: 20  loss:  7.6  tps: 6,502",
    )  # fmt: skip
    found = answered(
        PasteQuestion(gpu="b200", model="llama3-8b"), [PastedText("\n".join(lines), "x.log")]
    )
    facts = {name: fact.value for name, fact in found.pasted_facts.facts.items()}
    assert (found.pasted_facts.trainer, facts["gpus"]) == ("torchtitan", 64)
    assert (facts["tp"], facts["pp"], facts["seq"], facts["micro_batch"]) == (4, 2, 8192, 2)
    assert found.answer.advice.current.odds.fits == 1.0


def test_the_first_answer_says_how_long_the_tokens_take(capsys):
    assert (
        main(
            ["llama3-8b", "64", "h100", "--tokens", "1T", "--seq", "8192", "--global-batch", "512"]
        )
        == 0
    )
    days = re.search(
        r"the tokens take ([\d.]+) d", capsys.readouterr().out.replace("\n         ", "")
    )
    assert 10 < float(days[1]) < 30


def test_a_degree_that_only_a_run_knows_is_not_taken_for_one():
    text = of_eight().replace("--bf16", "--bf16 --pipeline-model-parallel-size $4")
    found = answered(PasteQuestion(), [PastedText(text, "x.sh")])
    assert found.answer.advice.current is None
    assert "nobody says pipeline_model_parallel_size ($4)" in found.notes[-1]


def test_a_rank_that_is_left_over_beside_a_full_fine_tune_is_no_fact():
    found = read(
        [PastedText(next(one for one in INPUTS if one["name"] == "left.sh")["text"], "x.sh")]
    )
    assert "lora_rank" not in found.facts


@pytest.mark.parametrize(("word", "wanted"), [("REDUCE_SCATTER", True), ("ALL_REDUCE", False)])
def test_what_nanotron_and_torchtitan_call_sequence_parallelism_is_in_the_planned_layout(
    word, wanted
):
    """Without it 7 of 40 published runs with tp of 8 and more were told that they do not fit."""
    nano = next(one for one in INPUTS if one["name"] == "nano.yaml")["text"]
    nano = nano.replace("tp: 4,", f"tp: 4, tp_mode: {word},")
    found = answered(PasteQuestion(gpu="h100"), [PastedText(nano, "nano.yaml")])
    assert found.answer.advice.current.strategy.sequence_parallel is wanted
    titan = next(one for one in INPUTS if one["name"] == "titan.toml")["text"]
    off = "" if wanted else "enable_sequence_parallel = false\n    "
    titan = titan.replace("tensor_parallel_degree", f"{off}tensor_parallel_degree")
    found = answered(PasteQuestion(gpu="h100"), [PastedText(titan, "titan.toml")])
    assert found.answer.advice.current.strategy.sequence_parallel is wanted
