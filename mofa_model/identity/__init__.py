"""What an object is and what it says of itself: pure, and never executed.

May import: kinds, launch, presets, yaml_text, errors. Imported by: manifest, and through it by
command and operator.

    identify(body, referenced, config_maps)    Identity: class, reason, facts with their sources
    read_script(text, name)                BatchScript: what a script asks for, runs and trains

    pods        pods of any object by their form: an AppWrapper's, a CronJob's, a Workflow's
    object_pods  those of one object, with its runtime's, and what their containers say
    devices     accelerators that pods ask for: vendor, product, number
    commands    command and arguments as a shell reads them; scripts within scripts
    recipes     trainers' own names of models, and what their own recipes say
    settings    options, variables, files and sources as settings, each with its place
    classes     programs and images that tell of a class; vocabulary.toml has them
    object_class  the class of an object, by all of that and by its kind
    launch_found  what a known trainer is told
    expansion   words of a shell script, expanded as a shell does it, each character with its place
    script      a shell script followed as a shell goes through it
    directives  the options of `#SBATCH` lines, and what sbatch refuses of them
    sbatch      a batch script of Slurm: directives, steps, facts with file and line
    sbatch_written  one that is changed in place, and a new one
    fact        a value and where it stands, and numbers as settings say them
    secret_words  tokens and passwords, which are never a fact
    named_models  models by names of hubs, folders, recipes and scripts
    model_shapes  models by their sizes
    facts       model, sequence, batch, precision, layout in use
"""

from mofa_model.identity.classes import JobClass
from mofa_model.identity.devices import DeviceRequest, agrees
from mofa_model.identity.fact import Fact, Facts
from mofa_model.identity.identity import Identity, identify
from mofa_model.identity.launch_found import LaunchFound, launch_in_pod
from mofa_model.identity.named_models import model_preset
from mofa_model.identity.object_pods import ConfigMaps
from mofa_model.identity.pods import pods_of
from mofa_model.identity.sbatch import BatchScript, read_script
from mofa_model.identity.secret_words import masked

__all__ = [
    "BatchScript",
    "ConfigMaps",
    "DeviceRequest",
    "Fact",
    "Facts",
    "Identity",
    "JobClass",
    "LaunchFound",
    "agrees",
    "identify",
    "launch_in_pod",
    "masked",
    "model_preset",
    "pods_of",
    "read_script",
]
