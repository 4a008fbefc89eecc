"""What an object is: its class, by what its containers run, and the reason in one line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from mofa_model.identity.commands import Contents, ProgramCall, programs
from mofa_model.identity.devices import DeviceRequest
from mofa_model.identity.pods import WrittenContainer
from mofa_model.records import dataclass

ONLY_OF: Final = {"batch_accumulation_per_replica": "nanotron"}
"""Settings by which one trainer is known: all its files have them, and no other trainer's.
Source: nanotron, config.py: TokensArgs.
"""


class JobClass(StrEnum):
    """What an object is for."""

    PRE_TRAINING = "llm-pretraining"
    """It trains a language model from the beginning, or goes on with that."""
    FINE_TUNING = "llm-finetuning"
    """It tunes a language model: supervised, with adapters, or by distillation."""
    RL = "rl-post-training"
    """It trains a language model by reinforcement learning or by preferences."""
    OTHER_TRAINING = "other-training"
    """It trains another model, or a model that nothing names."""
    INFERENCE = "inference"
    """It serves a model, or asks one."""
    EVALUATION = "evaluation-or-data"
    """It evaluates, or works on data or checkpoints."""
    HPC = "hpc-or-benchmark"
    """It measures machines, or computes something else than a model."""
    CPU = "cpu-only"
    """It asks for no accelerator."""
    OTHER = "web-or-other"
    """It is a server, a front end, or it waits."""

    @property
    def trains(self) -> bool:
        """Whether this class is training that the model can price."""
        return self in {JobClass.PRE_TRAINING, JobClass.FINE_TUNING}


NAMELESS: Final = 15
"""Weight of a command that is not known, and is no script: what weighs less only prepares. [1]"""
WAITS: Final = 20
"""Weight of a command that waits or prints: what weighs no more does no work of its own. [1]"""
UNKNOWN: Final = 30
"""Weight of a script or a launched program that is not known: what weighs more is known. [1]"""
TRAINER_IMAGE: Final = 36
"""Weight of the image of a trainer: what weighs more is a program, or source that imports
one. [1]
"""
BY_SCRIPT_NAME: Final = frozenset({61, 62})
"""Weights of scripts whose name alone says how they train: options may contradict it. [1]"""


class Clue(NamedTuple):
    """A sign of a job's class."""

    job_class: str
    """The class; empty = it only prepares."""
    says: str
    weight: int
    trainer: str
    found: str
    """The program, module or image."""
    where: str


@dataclass(frozen=True, kw_only=True)
class _Row:
    forms: re.Pattern[str]
    job_class: str
    says: str
    weight: int
    trainer: str = ""


@cache
def _rows(kind: str) -> tuple[_Row, ...]:
    """Rows of one kind in vocabulary.toml: patterns of programs or images, and what these say of
    a job.
    """
    tables = tomllib.loads(Path(__file__).with_name("vocabulary.toml").read_text("utf-8"))
    return tuple(
        _Row(
            forms=re.compile("|".join(f"(?:{form})" for form in row[f"{kind}s"]), re.IGNORECASE),
            job_class=row["class"],
            says=row["says"],
            weight=row["weight"],
            trainer=row.get("trainer", ""),
        )
        for row in tables[kind]
    )


LANGUAGE_MODELS: Final = re.compile(
    r"(?<![a-z])(llama|gemma|qwen|mistral|mixtral|mathstral|ministral|deepseek|phi-?[1-4]|falcon"
    r"|bloom|opt-\d|nemotron|granite|olmo|glm-?\d|chatglm|kimi|moonlight|yi-\d|baichuan|internlm"
    r"|mpt-\d|pythia|starcoder|codellama|tinyllama|command-[ra]|dbrx|jamba|mamba|gpt|minimax"
    r"|ernie|hunyuan|seed-oss|exaone|solar-|vicuna|apertus|dolly|stablelm|redpajama|xgen|zephyr"
    r"|orca-|openchat|starling|hermes|minitron|tulu|llemma|codestral|codegemma|aya-\d|stable-?code"
    r"|smollm|llm|eurollm)",
    re.IGNORECASE,
)
"""Families of language models."""
_TINY: Final = re.compile(r"tinyllama|codellama|tiny-?llama", re.IGNORECASE)
OTHER_MODELS: Final = re.compile(
    r"(?<![a-z])(esm\d?\w*|bionemo|protein\w*|bert|roberta|resnet\w*|imagenet|mnist|cifar\w*"
    r"|\w*diffusion|sdxl|sd\d{2}|wan\d?[\d.]*|unet\w*|vit|clip|whisper|wav2vec\w*|yolo\w*"
    r"|segment\w*|swin\w*|llava|vlm|image-?classif\w*|text-?classif\w*|classifier|audio|speech|asr"
    r"|\w?tts|video|dlrm|molecul\w*|geneformer|evo2|alphafold|openfold|aurora|weather|ctr|xgboost"
    r"|horovod|mlp|cosmos|lerobot|dreambooth|text[-_]?(to|2)[-_]?(image|video|music)|controlnet"
    r"|inpaint\w*|speech\w*|vision\w*"
    r"|sentence[-_]?transformers?|(flag)?embed(ding|der)s?|bge|mpnet|rerank\w*|flux\.?1?"
    r"|detectron\w*|maskrcnn|ssd|unet|graphcast|gnn)(?![a-z])",
    re.IGNORECASE,
)
"""Models and data sets that are no language models."""
_TUNES: Final = re.compile(
    r"(?<![a-z])(fine[-_ ]?tun\w*|finetun\w*|sft|q?lora|peft|distil\w*"
    r"|instruct[-_]tun\w*)(?![a-z])",
    re.IGNORECASE,
)
_SEEING: Final = re.compile(r"[-_]vl(?![a-z])|vision|[-_]omni|multimodal", re.IGNORECASE)
"""Names of models of language and images."""
_NAMES: Final[Mapping[JobClass, re.Pattern[str]]] = {
    JobClass.EVALUATION: re.compile(
        r"quanti[sz]|compressor|convert|download|preprocess|tokeni[sz]|merge|dataset"
        r"|evaluat|(^|-)eval(-|$)|data-(proc|prep|load)"
    ),
    JobClass.INFERENCE: re.compile(
        r"infer|serv(e|ing)|predict|vllm|sglang|tgi|triton|llm-d(?![a-z])"
    ),
    JobClass.HPC: re.compile(r"bench|nccl|perf-?test"),
}
"""Words in names of pods and containers that tell of a class."""


def clues_of_runtime(name: str, where: str) -> list[Clue]:
    """Clues from the name of a training runtime whose object was not given."""
    return list(_of_image(name, where))


def clues_of(contents: Contents, written_containers: Iterable[WrittenContainer]) -> list[Clue]:
    """Clues from commands and images, the strongest first."""
    clues = [clue for command in programs(contents) for clue in _of_command(command)]
    for container in written_containers:
        clues += _of_image(container.image, f"{container.where}.image")
    clues += _of_sources(contents)
    return sorted(clues, key=lambda clue: -clue.weight)


def trainer_clue(clues: Iterable[Clue]) -> Clue | None:
    """The clue that says the trainer; Composer starts others too, so that it is the last guess."""
    trainers = [clue for clue in clues if clue.trainer]
    own = (clue for clue in trainers if clue.trainer != "composer")
    return next(own, next(iter(trainers), None))


_PREPARES_ONLY: Final = re.compile(r"\+*(--)?(model\.)?do_train(ing)?=false", re.IGNORECASE)
"""The switch of NeMo and BioNeMo by which data are prepared and nothing is trained."""
_OF_RL: Final = re.compile(
    r"--(advantage|rollout[-_]batch|num[-_]rollout|n[-_]samples[-_]per[-_]prompt)"
)
"""Options that only reinforcement learning has."""
_OF_MPI: Final = frozenset({"mpirun", "mpiexec", "srun", "prterun"})
_INTERPRETED: Final = re.compile(r"python|\.(py|sh|ya?ml)$|(^|/)(ba)?sh$|[$ ]")
_STARTS_BINARIES: Final = frozenset(
    {"mpirun", "mpiexec", "srun", "horovodrun", "numactl", "prterun", "tune"}
)
"""Launchers of programs that are no Python; torchtune's recipes have names as programs do."""


def _of_command(command: ProgramCall) -> Iterator[Clue]:
    """What a command says of the class of its job, such as training or evaluation; each clue with
    its weight.
    """
    texts, program = command.texts, command.program
    first = texts[0].rpartition("/")[2]
    named: tuple[str, ...] = (first, program, " ".join((first, *texts[1:2])))
    if program == "nemo":  # its last word says whether it tunes
        at = texts.index(program)
        program = " ".join(texts[at : at + 3])
        named = (program,)
    launcher = first if first in {"accelerate", "deepspeed", "composer"} else ""
    if "COMPILE=1" in texts:
        yield Clue(JobClass.EVALUATION, "a compilation", 100, "", _plain(program), command.where)
        return
    if any(_PREPARES_ONLY.fullmatch(text) for text in texts):
        says = "a preparation of data, with training switched off"
        yield Clue(JobClass.EVALUATION, says, 100, "", _plain(program), command.where)
        return
    if any(_OF_RL.match(text) for text in texts):
        says = "a program with options of RL post-training"
        yield Clue(JobClass.RL, says, 95, "", _plain(program), command.where)
        return
    if "=" in first or first.startswith("-"):
        return  # options alone: the image has the program
    if first in _STARTS_BINARIES:
        named += tuple(text for text in texts[1:] if not text.startswith("-") and "=" not in text)
    if first in _OF_MPI and not any(_INTERPRETED.search(text) for text in texts):
        named += tuple(texts)
        if not any(any(map(row.forms.search, named)) for row in _rows("program")):
            says = "a binary under MPI, as HPC programs are"
            yield Clue(JobClass.HPC, says, 40, "", _plain(program), command.where)
            return
    for row in _rows("program"):
        if any(map(row.forms.search, named)):
            shown = next(filter(row.forms.search, (program, first, *reversed(named))))
            yield Clue(
                row.job_class, row.says, row.weight,
                (row.trainer if row.trainer != "custom" else launcher) or row.trainer or launcher,
                _plain(shown), command.where,
            )  # fmt: skip
            return
    starts = program != first or launcher or first.startswith(("torchrun", "python", "mpirun"))
    says, weight = "a program that is not known", UNKNOWN if starts else NAMELESS
    yield Clue("", says, weight, launcher, _plain(program), command.where)


def _of_image(image: str, where: str) -> Iterator[Clue]:
    name = image.partition("@")[0]
    for row in _rows("image"):
        if row.forms.search(name):
            shown = _plain(name.rpartition("/")[2])
            yield Clue(row.job_class, row.says, row.weight, row.trainer, shown, where)


_IMAGES: Final = "a library for images or sound"
_MEDIA: Final = "monai|timm|diffusers|torchaudio|ultralytics"
_TUNING, _PRE, _RL = JobClass.FINE_TUNING, JobClass.PRE_TRAINING, JobClass.RL
_LIBRARIES: Final = tuple(
    (re.compile(form), job_class, trainer, says)
    for form, job_class, trainer, says in (
        (r"\b(GRPO|PPO|DPO|RLOO|ORPO|KTO)Trainer\b|import (verl|openrlhf)\b",
         _RL, "trl", "an RL or preference trainer"),
        (r"\bSFTTrainer\b", _TUNING, "trl", "TRL's SFTTrainer"),
        (r"(?i)\bllamafactory\b|llama-factory", _TUNING, "llama-factory", "LLaMA-Factory"),
        (r"\b(torchtune|axolotl|llamafactory|unsloth)\b",
         _TUNING, "", "a library for fine-tuning"),
        (r"\b\w+\.pretrain_recipe\(", _PRE, "nemo", "a recipe of NeMo"),
        (r"\b\w+\.finetune_recipe\(", _TUNING, "nemo", "a recipe of NeMo"),
        (r"\bmegatron\.bridge\.recipes\b.*_(finetune|sft|peft)_config\b",
         _TUNING, "megatron-bridge", "a recipe of Megatron Bridge"),
        (r"\bmegatron\.bridge\b", _PRE, "megatron-bridge", "Megatron Bridge"),
        (r"AutoModelForCausalLM(?=[\s\S]*\bTrainer\()",
         _TUNING, "", "a Trainer of a causal language model"),
        (r"estimate_zero\w+|lm_eval", JobClass.EVALUATION, "", "an estimate or an evaluation"),
        (r"from vllm import|import vllm|from sglang|\bpipeline\(\s*[\"']|\.map_batches\(",
         JobClass.INFERENCE, "", "a library for inference"),
        (rf"(?i)torchvision|MNIST|CIFAR10|resnet\d+|import ({_MEDIA})|from ({_MEDIA})[. ]",
         JobClass.OTHER_TRAINING, "", _IMAGES),
    )
)  # fmt: skip
"""What Python sources import, with the class and the trainer that it tells of."""


def _of_sources(contents: Contents) -> Iterator[Clue]:
    """What Python sources and lists of packages import."""
    for source in contents.files:
        if not source.name.endswith((".py", "python -c", "runtimeEnvYAML", ".txt")):
            continue
        for form, job_class, trainer, says in _LIBRARIES:
            if form.search(source.text):
                yield Clue(
                    job_class, says, TRAINER_IMAGE + 1, trainer, _plain(source.name), source.where
                )
                break


def _plain(text: str) -> str:
    """A program's or an image's name without anything secret: its last parts, and short."""
    text = text.partition("?")[0].rpartition("@")[2] if "://" in text else text
    return "/".join(text.split("/")[-2:])[:80]


_UNNAMED: Final = "nothing names a language model"


class ClassVerdict(NamedTuple):
    """A class with its reason."""

    job_class: JobClass
    reason: str
    sure: bool = True
    """Whether a program or an image that is known says it; False = it is the best guess."""
    may_train: bool = True
    """Whether a policy may say what it trains; it may not where the program shows no training."""


def class_of(
    clues: list[Clue],
    device_request: DeviceRequest,
    names: Iterable[str],
    *,
    models: Iterable[str],
    architectures: Iterable[str] = (),
    speaks: bool,
    learns: bool,
    serves: bool,
    makes: bool,
    asks_model: bool,
    elsewhere: bool,
    repeats: bool = False,
) -> ClassVerdict:
    """The class of an object.

    `names` are those of its pods and containers; `models` what it names as its model,
    `architectures` what it names as its network; `speaks`
    whether it has settings of language models, `learns` whether it has some of training; `serves`
    whether it is probed or listens as servers do; `makes` whether it makes pods of its own;
    `asks_model` whether it has an option for a model, be its value a placeholder; `elsewhere`
    whether its pods are those of another object; `repeats` whether it goes over its data more than
    once, as no pre-training does.
    """
    names, models = list(names), list(models)
    if not makes:
        return ClassVerdict(JobClass.OTHER, "it makes no pods of its own")
    best = next((clue for clue in clues if clue.job_class or clue.weight >= NAMELESS), None)
    if best is None:
        best = clues[0] if clues else Clue("", "nothing", 0, "", "", "")
    reason = _reason(best)
    job_class = JobClass(best.job_class) if best.job_class else None
    text = f"{best.found} {' '.join(models)} {' '.join(names)}"
    if job_class in {JobClass.OTHER_TRAINING, JobClass.FINE_TUNING, JobClass.PRE_TRAINING, None}:
        speaks = speaks and (learns or job_class is not None)
        speaks = speaks or (asks_model and job_class is JobClass.FINE_TUNING)
        job_class, why = _training(
            job_class,
            best,
            models,
            text,
            clues,
            architectures=architectures,
            repeats=repeats and (asks_model or any("/" in model for model in models)),
            speaks=speaks,
            serves=serves,
        )
        reason = f"{reason}; {why}" if why else reason
    if job_class is None:
        job_class, reason = _by_name(names, best, device_request, reason)
    if job_class is JobClass.OTHER and best.weight <= WAITS and device_request.vendor:
        by_name, reason_by_name = _by_name(names, best, device_request, reason)
        job_class, reason = by_name or job_class, reason_by_name
    idle = job_class is JobClass.OTHER and best.weight <= WAITS
    without_devices = idle or job_class in {None, JobClass.OTHER_TRAINING}
    if without_devices and not device_request.vendor and not elsewhere:
        reason = f"no container asks for an accelerator; {reason}"
        return ClassVerdict(JobClass.CPU, reason)
    if job_class is None:
        inline = best.found == "python -c"
        empty = not best.found or best.weight < NAMELESS
        small = JobClass.HPC if device_request.vendor else JobClass.CPU
        job_class = JobClass.OTHER if empty else small if inline else JobClass.OTHER_TRAINING
        return ClassVerdict(job_class, reason, sure=False, may_train=empty or learns)
    sure = best.weight > UNKNOWN and not reason.endswith(_UNNAMED)
    return ClassVerdict(job_class, reason, sure)


def _by_name(
    names: Iterable[str], best: Clue, device_request: DeviceRequest, reason: str
) -> tuple[JobClass | None, str]:
    """What the names of an object say where nothing else does."""
    if best.weight > UNKNOWN:
        return None, reason
    lower = [name.lower() for name in names]
    job_class = next((kind for kind, form in _NAMES.items() if any(map(form.search, lower))), None)
    if not device_request.vendor and job_class is not JobClass.EVALUATION:
        return None, reason
    return job_class, f"{reason}; its name says {job_class}" if job_class else reason


_KNOWN: Final = 88
"""Weight from which a program is known for what it trains, whatever its options name. [1]"""


def _training(
    job_class: JobClass | None,
    best: Clue,
    models: list[str],
    text: str,
    evidence: list[Clue],
    *,
    architectures: Iterable[str],
    repeats: bool,
    speaks: bool,
    serves: bool,
) -> tuple[JobClass | None, str]:
    """Whether training is that of a language model, and of which sort."""
    language = next((model for model in models if LANGUAGE_MODELS.search(model)), "")
    if job_class is JobClass.OTHER_TRAINING and best.weight >= _KNOWN:
        return job_class, ""
    seeing = next((model for model in models if _SEEING.search(model)), "")
    if seeing and job_class is not None:
        return JobClass.OTHER_TRAINING, f"{seeing} sees images as well"
    if network := OTHER_MODELS.search(" ".join([best.found, *architectures])):
        return JobClass.OTHER_TRAINING, f"{network.group()} is no language model"
    other = OTHER_MODELS.search(f"{best.found} {' '.join(models)}") or (
        None if language else OTHER_MODELS.search(text)
    )
    is_known = best.weight > UNKNOWN and best.weight not in BY_SCRIPT_NAME
    if job_class in {JobClass.FINE_TUNING, JobClass.PRE_TRAINING} and is_known:
        if other and not language:
            return JobClass.OTHER_TRAINING, f"{other.group()} is no language model"
        named = _TUNES.search(f"{best.found} {text}") is not None
        tunes = job_class is JobClass.FINE_TUNING or repeats or named
        return (JobClass.FINE_TUNING if tunes else JobClass.PRE_TRAINING), ""
    if job_class is None and not speaks:
        return None, ""
    if job_class is None and serves:
        return JobClass.INFERENCE, "it listens and is probed as a server"
    if other and not language:
        return JobClass.OTHER_TRAINING, f"{other.group()} is no language model"
    if language or speaks or LANGUAGE_MODELS.search(_TINY.sub("llama", text)):
        clue = any(clue.job_class == JobClass.FINE_TUNING for clue in evidence)
        named = _TUNES.search(text) is not None
        tunes = job_class is JobClass.FINE_TUNING or clue or repeats or named
        shows = f"it names {language}" if language else "its settings are those of a language model"
        return (JobClass.FINE_TUNING if tunes else JobClass.PRE_TRAINING), shows
    library = next((clue for clue in evidence if clue.says == _IMAGES), None)
    if library is not None and job_class:
        return JobClass.OTHER_TRAINING, f"{library.where} imports {library.says}"
    return JobClass.OTHER_TRAINING if job_class else None, _UNNAMED


def _reason(best: Clue) -> str:
    if not best.found:
        return "it has no command, and its image is not known"
    return f"{best.where} is {best.found}, {best.says}"
