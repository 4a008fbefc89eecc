"""A layout in a trainer's own words: the arguments that launch it, and a launch command read as a layout.

May import: search and what stands below it. Imported by: manifest, verbs.

    launch(strategy, "megatron", problem)         Launch: arguments, files, environment, notes
    read(words)                                   Reading: what a launch command says
    read_layout("tp=8,pp=4" or "--tensor-...", gpus)  the Strategy, whichever of the two was written

    answer     the types
    arguments/ the trainers' argument names as data, with the release in which they were read
    table      those files, and the check that every word we print is in them
    features   what Megatron's words mean; refusals: what a trainer does not start, by the search's rules
    megatron, torchtitan, nemo, deepspeed, accelerate   one trainer each: write and read
    settings   a trainer's file of settings; hugging_face: arguments of the trainer that DeepSpeed and Accelerate start
    trainers   which trainer a command is for
    formats    whose a file of settings is; recipes: nanotron's and LLM Foundry's, which are read and never written
    shell      a shell line as the shell reads it: commands, words, places
    runners    programs that run others: whose words they are, and which of them is a line
    parser     the program that parses shell lines
    script     the script that starts a launch
    verified   what the trainers' own checks took
    rewrite    a command with another layout: rewritten(words, arguments), rewritten_line(line, arguments)
"""

from mofa_model.launch.answer import TORCHRUN, Launch, Reading, shell_lines
from mofa_model.launch.rewrite import rewritten, rewritten_line
from mofa_model.launch.script import launch_script, on_nodes, program_of
from mofa_model.launch.trainers import TRAINERS, launch, read, read_layout
from mofa_model.launch.verified import unverified

__all__ = [
    "TORCHRUN",
    "TRAINERS",
    "Launch",
    "Reading",
    "launch",
    "launch_script",
    "on_nodes",
    "program_of",
    "read",
    "read_layout",
    "rewritten",
    "rewritten_line",
    "shell_lines",
    "unverified",
]
