"""Facts by name: models, devices, fabrics, precisions, software stacks, and the constants measured
on them.

May import: spec, files, units, errors. Imported by: whatever turns a name into a description; no
equation does.

The facts are the `.toml` files beside this module, one a kind, and each entry says where it was
read. Only the file that is asked for is parsed, once a process. `constants.toml` is written by
`mofa fit`; the others by hand.

    cluster("h100", 1024, stack="megatron-core", precision="bf16")    a Cluster with its Calibration
    model("llama3-405b")        a Transformer; ids and aliases, case ignored
    model_named("org/name")     a Transformer: a preset, or from a model hub's config.json
"""

from mofa_model.presets.catalogue import (
    Stack,
    base,
    device,
    device_class,
    fabric,
    family,
    optimizer,
    precision,
    stack,
    stack_of,
)
from mofa_model.presets.clusters import cluster, link
from mofa_model.presets.constants import Constant, calibration, constants_of
from mofa_model.presets.device_sheets import device_of_file
from mofa_model.presets.entries import (
    KINDS,
    canonical_names,
    entry,
    hub_id,
    instance,
    is_address,
    meanings,
    names,
    resolve,
    sources,
)
from mofa_model.presets.models import model, model_named

__all__ = [
    "KINDS",
    "Constant",
    "Stack",
    "base",
    "calibration",
    "canonical_names",
    "cluster",
    "constants_of",
    "device",
    "device_class",
    "device_of_file",
    "entry",
    "fabric",
    "family",
    "hub_id",
    "instance",
    "is_address",
    "link",
    "meanings",
    "model",
    "model_named",
    "names",
    "optimizer",
    "precision",
    "resolve",
    "sources",
    "stack",
    "stack_of",
]
