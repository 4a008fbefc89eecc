"""Launch commands: written from a layout in a trainer's own words, and read into a layout.

May import: presets, search and what stands below it. Imported by: manifest, verbs.

    launch(strategy, "megatron", problem)         Launch: arguments, files, environment, notes
    read(words)                                   Reading: what a launch command says
    read_layout("tp=8,pp=4" or "--tensor-...", gpus)  the Strategy, whichever of the two was written

    answer       what a launch is, and its script; what was read of one
    arguments/   the trainers' argument names as data, with the release in which they were read
    table        looks names up in them
    megatron, torchtitan, nemo, deepspeed, accelerate   one trainer each: write and read
    trl, axolotl, llama_factory, torchtune              one fine-tuner each, whose file says all
    hugging_face arguments that most of these share
    start, starts  what a launch says beside its layout: model, data, tokenizer, steps, folders
    model_words, hub_config   a model in the words of trainers, and as a config.json
    programs/    scripts that are written beside a launch whose trainer has none
    tuning       what a fine-tuner's file says beside the layout
    tuning_request   the same, as a question asks for it
    trainers     which trainer a command is for, and what it refuses
    formats      which trainer's a file of settings is
    shell        shell lines, taken apart
    rewrite      a command with another layout: rewritten(words, …), rewritten_line(line, …)
    over_file    a launch that is a file, as words of a command over another file
    edits        parts of a script's text that are replaced, each told with its line
    in_script    the same in the script that people have: changed_script(text, launch, follow)
"""

from mofa_model.launch.answer import (
    TORCHRUN,
    Launch,
    Reading,
    launch_script,
    on_nodes,
    program_of,
    shell_lines,
)
from mofa_model.launch.edits import ChangedScript
from mofa_model.launch.in_script import changed_script
from mofa_model.launch.rewrite import layout_words, rewritten, rewritten_line
from mofa_model.launch.start import Start
from mofa_model.launch.table import unverified
from mofa_model.launch.trainers import TRAINERS, launch, read, read_layout

__all__ = [
    "TORCHRUN",
    "TRAINERS",
    "ChangedScript",
    "Launch",
    "Reading",
    "Start",
    "changed_script",
    "launch",
    "launch_script",
    "layout_words",
    "on_nodes",
    "program_of",
    "read",
    "read_layout",
    "rewritten",
    "rewritten_line",
    "shell_lines",
    "unverified",
]
