"""A launch written into a script: what differs is changed where it stands, and nothing else is."""

import difflib
import random
import shutil
import subprocess

import pytest
from questions import case

from mofa_model.identity.sbatch import followed
from mofa_model.launch import Launch, changed_script, launch, read
from mofa_model.strategy import Strategy

ASKED = case("llama3-70b", batch=512)
NEW = Strategy(tp=4, pp=8, dp=8, mbs=2, pipeline_overlap=False)
MEGATRON = launch(NEW, "megatron", ASKED, interval_steps=100)


def told(*words, trainer="megatron", **environment):
    return Launch(trainer=trainer, release="", arguments=words, environment=environment)


TP4 = told("--tensor-model-parallel-size", "4")
HEAD = "#!/bin/bash\n#SBATCH --nodes=8 --gpus-per-node=8\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("TP=8\npy x.py --tensor-model-parallel-size $TP\n", "TP=4\n"),
        ("TP=${TP:-8}\npy x.py --tensor-model-parallel-size ${TP}\n", "TP=${TP:-4}\n"),
        (': "${TP:=8}"\nA=(--tensor-model-parallel-size $TP)\npy x.py "${A[@]}"\n', ': "${TP:=4}"\n'),
        ('A="--tensor-model-parallel-size 8 --lr 1"\npy x.py $A\n', 'A="--tensor-model-parallel-size 4 --lr 1"\n'),
        ("py x.py \\\n  --tensor-model-parallel-size=8 \\\n  --lr 1\n", "  --tensor-model-parallel-size=4 \\\n"),
        ("srun bash -c 'py x.py --tensor-model-parallel-size 8'\n", "srun bash -c 'py x.py --tensor-model-parallel-size 4'\n"),
        ("f() { py x.py --tensor-model-parallel-size $1; }\nf 8\n", "f 4\n"),
    ],
)  # fmt: skip
def test_a_value_is_changed_where_the_script_gives_it(before, after):
    found = changed_script(HEAD + before, TP4, followed)
    assert after in found.text
    assert [len(found.changes), found.left] == [1, ()]
    assert changed_script(found.text, TP4, followed).text == found.text


def test_a_variable_that_also_names_a_folder_is_left_and_the_option_written_out():
    text = "TP=8\npy x.py --load ckpt/tp$TP --tensor-model-parallel-size $TP\n"
    found = changed_script(text, TP4, followed)
    assert found.text == text.replace("size $TP", "size 4")


def test_a_directive_that_gives_a_value_is_left_to_the_scheduler():
    text = HEAD + "srun py x.py --tensor-model-parallel-size $SLURM_GPUS_PER_NODE\n"
    found = changed_script(text, TP4, followed)
    assert found.text == HEAD + "srun py x.py --tensor-model-parallel-size 4\n"


def test_what_the_advice_does_not_say_is_taken_out_with_its_line():
    text = "py x.py \\\n  --tensor-model-parallel-size 4 \\\n  --lr 1 \\\n  --recompute-activations\necho done\n"
    found = changed_script(text, TP4, followed)
    assert found.text == text.replace(" \\\n  --recompute-activations", "")


def test_what_is_new_stands_behind_the_other_options_with_their_indentation():
    text = "A=(\n    --tensor-model-parallel-size 4\n    --lr 1 # small\n)\npy x.py ${A[@]}\n"
    new = told("--tensor-model-parallel-size", "4", "--sequence-parallel")
    found = changed_script(text, new, followed)
    assert found.text == text.replace("size 4\n", "size 4\n    --sequence-parallel\n")


def test_a_variable_of_the_environment_is_changed_or_exported_before_the_command():
    asked = told("--bf16", CUDA_DEVICE_MAX_CONNECTIONS="1")
    there = "export CUDA_DEVICE_MAX_CONNECTIONS=8\npy x.py --bf16\n"
    assert "CONNECTIONS=1\n" in changed_script(there, asked, followed).text
    found = changed_script("cd x\npy x.py --bf16\n", asked, followed)
    assert found.text == "cd x\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\npy x.py --bf16\n"


def test_options_of_the_trainer_of_hugging_face_are_changed_and_words_of_truth_kept():
    text = "deepspeed t.py --bf16 True --per_device_train_batch_size 16 --deepspeed zero3.json\n"
    asked = told(
        "--deepspeed",
        "ds.json",
        "--per_device_train_batch_size",
        "2",
        "--bf16",
        trainer="deepspeed",
    )
    found = changed_script(text, asked, followed)
    assert found.text == text.replace("16 --", "2 --").replace("zero3.json", "ds.json")


def test_overrides_of_a_recipe_are_changed():
    text = "TP=2\nsrun python r.py model.tensor_model_parallel_size=$TP train.train_iters=9\n"
    asked = told("model.tensor_model_parallel_size=4", trainer="nemo")
    assert changed_script(text, asked, followed).text == text.replace("TP=2", "TP=4")


def test_a_script_without_such_options_is_left_as_it_is_and_says_so():
    found = changed_script("python train.py --epochs 3\n", MEGATRON, followed)
    assert found.text == "python train.py --epochs 3\n"
    assert "no command in it" in found.left[0]


def test_a_fork_of_megatron_is_left_as_it_is_and_says_so():
    text = "deepspeed pretrain_gpt.py --tensor-model-parallel-size 2 --deepspeed --zero-stage 1\n"
    found = changed_script(text, MEGATRON, followed)
    assert (found.text, found.changes) == (text, ())
    assert found.left[0].startswith("--deepspeed is told to a fork of Megatron")


FORMS = {
    "command": "torchrun --nproc_per_node 8 pretrain_gpt.py \\\n{lines}\n",
    "array": 'ARGS=(\n{plain}\n)\ntorchrun --nproc_per_node 8 pretrain_gpt.py "${{ARGS[@]}}"\n',
    "string": 'ARGS="\n{lines}\n"\ntorchrun --nproc_per_node 8 pretrain_gpt.py $ARGS\n',
    "inner": 'srun bash -c "\n  torchrun --nproc_per_node 8 pretrain_gpt.py {one}\n"\n',
    "function": 'run() {{\n    torchrun pretrain_gpt.py {one} "$@"\n}}\nrun --lr 3e-4\n',
}  # fmt: skip
"""How scripts hold a command's options."""
OLD = {
    "--tensor-model-parallel-size": "8", "--pipeline-model-parallel-size": "2", "--micro-batch-size": "1",
    "--global-batch-size": "256", "--seq-length": "8192", "--save-interval": "500", "--lr": "1e-4", "--load": "ckpt",
    "--num-layers": "80", "--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": "1",
    "--recompute-activations": "", "--sequence-parallel": "", "--bf16": "", "--fp16": "", "--use-distributed-optimizer": "",
    "--overlap-grad-reduce": "", "--log-interval": "1", "--tp-comm-overlap": "", "--distributed-timeout-minutes": "60",
}  # fmt: skip
KEPT = {"--lr", "--load", "--num-layers", "--log-interval", "--distributed-timeout-minutes"}


def drawn(seed):
    """A script with some options, some of them in variables."""
    draw = random.Random(seed)
    form = draw.choice(list(FORMS))
    some = [one for one in OLD if one == "--tensor-model-parallel-size" or draw.random() < 0.7]
    draw.shuffle(some)
    head, options = "#!/bin/bash\nset -e\n", []
    for number, name in enumerate(some):
        value = OLD[name]
        if value and draw.random() < 0.4:
            variable = f"V{number}"
            held = draw.choice([value, "${" + variable + ":-" + value + "}", f'"{value}"'])
            head += f"{variable}={held}\n"
            value = f"${variable}" if draw.random() < 0.5 else f"${{{variable}}}"
        options.append(
            f"{name}={value}" if value and draw.random() < 0.15 else f"{name} {value}".rstrip()
        )
    lines = " \\\n".join(f"    {one}" for one in options)
    plain = "\n".join(f"    {one}" for one in options)
    text = head + FORMS[form].format(lines=lines, plain=plain, one=" ".join(options))
    return text + "echo done\n", some


def holds(seed):
    """What a changed script has to keep: only the layout differs, twice is once, bash and
    shellcheck are as content.
    """
    text, some = drawn(seed)
    found = changed_script(text, MEGATRON, followed)
    assert not found.left, (found.left, text)
    calls = [[w.text for w in one.traced_words] for one in followed(found.text).followed]
    command = next(one for one in calls if "pretrain_gpt.py" in one)
    reading = read(command)
    assert reading.strategy(256) == NEW, text
    assert reading.interval_steps == 100
    for name in KEPT & {*some}:
        said = [w for one in command for w in one.split("=")]
        assert said[said.index(name) + 1] == OLD[name]
    assert changed_script(found.text, MEGATRON, followed).text == found.text
    assert subprocess.run(["bash", "-n"], input=found.text, text=True, check=False).returncode == 0
    return text, found


@pytest.mark.parametrize("seed", range(6))
def test_a_drawn_script_says_the_new_layout_and_all_else_as_before(seed):
    text, found = holds(seed)
    lines = list(difflib.ndiff(text.splitlines(), found.text.splitlines()))
    changed = [one for one in lines if one[:2] in {"- ", "+ "}]
    assert (
        len(changed) <= 2 * len(found.changes) + 2
    )  # the line before a new last one gets a backslash


@pytest.mark.soak
def test_two_hundred_drawn_scripts_hold_and_shellcheck_says_no_more_of_them():
    checker = shutil.which("shellcheck")
    for seed in range(200):
        text, found = holds(seed)
        if checker:
            before, after = (
                subprocess.run(
                    [checker, "-f", "gcc", "-"],
                    input=one,
                    text=True,
                    capture_output=True,
                    check=False,
                ).stdout.count("\n")
                for one in (text, found.text)
            )
            assert after <= before, found.text
