"""Questions of the whole schema, drawn to be dear: sizes with many divisors, many numbers of nodes,
long lists, unlike layers.
"""

import json
from functools import cache

from hypothesis import strategies as st

from mofa_model.axes.frameworks import frameworks
from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.training_job import Architecture, TrainingJobSpec

COMPOSITE = (
    *(2**n for n in range(24)), *(3 * 2**n for n in range(22)),
    60, 120, 180, 240, 360, 720, 840, 1008, 1260, 1680, 2520, 5040, 7560, 10080, 20160, 27720, 45360, 50400, 55440, 83160,
    90090, 110880, 166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720, 1081080, 2162160, 4324320, 8648640,
)  # fmt: skip
"""Sizes with as many divisors as any of their length."""
GIANTS = {
    "layers": [1, 2, 61, 126, 718, 720, 838, 840, 958, 960, 1006, 1008, 1024],
    "heads": [1, 8, 48, 128, 720, 1260, 2520, 5040],
    "kvHeads": [1, 2, 4, 8],
    "headDim": [64, 128],
    "gpusPerNode": [1, 8, 16, 60, 120, 360, 720, 840, 1024],
    "scaleUpDomain": [8, 72, 720, 5040],
}
"""Fields where other numbers mostly are refused."""
WORDS = {
    "preset": ["llama3-405b", "llama3.1-8b", "deepseek-v3", "mixtral-8x22b"],
    "precision": ["bf16", "fp8-current", "mxfp8"],
    "optimizer": ["adamw", "muon"],
    "framework": [name for name in frameworks() if name != "any"],
    "gpu": ["h100-80gb-sxm", "b200", "a100-80gb-sxm"],
    "documents": ["512:3,8k", ",".join(f"{n}:{n % 9 + 1}" for n in range(1, 64))],
    "tokens": ["15T", "1", "999999P"],
    "profile": ["p"],
    "oversubscription": ["1", "2.5"],
}
"""Texts that are names of something."""


def drawn(schema, definitions, name=""):
    """A strategy for a schema of ours; optional fields come with a chance of about a half."""
    if name in WORDS and schema.get("type", "string") == "string" and "enum" not in schema:
        return st.sampled_from(WORDS[name])
    if "$ref" in schema:
        return drawn(definitions[schema["$ref"].rpartition("/")[2]], definitions, name)
    if "allOf" in schema:
        return drawn(schema["allOf"][0], definitions, name)
    if "anyOf" in schema:
        return drawn(
            next(branch for branch in schema["anyOf"] if branch.get("type") != "null"),
            definitions,
            name,
        )
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    return TYPES[schema["type"]](schema, definitions, name)


def _object(schema, definitions, name):
    if "properties" not in schema:
        return st.dictionaries(st.sampled_from(["run", "team"]), st.text(max_size=8), max_size=2)
    fields = {key: drawn(field, definitions, key) for key, field in schema["properties"].items()}
    must = set(schema.get("required", ()))
    return st.fixed_dictionaries(
        {key: fields[key] for key in fields if key in must},
        optional={key: fields[key] for key in fields if key not in must},
    )


def _integer(schema, definitions, name):
    least, most = schema.get("minimum", 0), schema.get("maximum", 10**7)
    giants = [n for n in GIANTS.get(name, COMPOSITE) if least <= n <= most]
    return (
        st.sampled_from(giants)
        if name in GIANTS
        else st.sampled_from(giants) | st.integers(least, most)
    )


def _array(schema, definitions, name):
    most = schema.get("maxItems", 8)
    return st.lists(
        drawn(schema["items"], definitions, name), min_size=1, max_size=most, unique_by=json.dumps
    )


def _string(schema, definitions, name):
    return (
        st.sampled_from(schema["examples"])
        if "examples" in schema
        else st.text(max_size=min(40, schema.get("maxLength", 40)))
    )


TYPES = {
    "object": _object, "integer": _integer, "array": _array, "string": _string,
    "boolean": lambda *_: st.booleans(), "number": lambda *_: st.floats(0, 1e6),
}  # fmt: skip


@cache
def _specs(part):
    schema = part.model_json_schema(by_alias=True)
    return drawn(schema, schema.get("$defs", {}))


def config(layers, kinds, experts):
    """A config.json whose layers follow no rule."""
    return json.dumps(
        {
            "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 64, "num_hidden_layers": layers, "vocab_size": 201088, "sliding_window": 128,
            "num_local_experts": experts, "num_experts_per_tok": 4,
            "layer_types": [("sliding_attention", "full_attention")[kinds >> n & 1] for n in range(layers)],
        }
    )  # fmt: skip


@st.composite
def questions(draw):
    """A TrainingJob with its profile, as the operator would ask the model; most of it can
    be understood.
    """
    spec, profile = draw(_specs(TrainingJobSpec)), draw(_specs(ClusterProfileSpec))
    files = {}
    kind = draw(st.sampled_from(["preset", "architecture", "architecture", "configMapRef"]))
    if kind == "configMapRef":
        layers = draw(st.sampled_from([24, 720, 1008, 1024]))
        experts = draw(st.sampled_from([32, 5040, 10000]))
        files = {
            "cm": {"config.json": config(layers, draw(st.integers(0, 2**layers - 1)), experts)}
        }
        spec["model"] = {kind: {"name": "cm"}}
    else:
        spec["model"] = {
            kind: draw(
                _specs(Architecture) if kind == "architecture" else st.sampled_from(WORDS[kind])
            )
        }
    _mend(spec, draw)
    about = {"apiVersion": "mofa.dev/v1alpha1", "metadata": {"name": "p", "namespace": "evil"}}
    return {
        "job": about | {"kind": "TrainingJob", "spec": spec},
        "profile": about
        | {"kind": "ClusterProfile", "spec": _of(profile, "gpu", "gpusPerNode", "network", "host")},
        "files": files,
    }


def _mend(spec, draw):
    """Most fields that contradict others go, so that the search is reached."""
    shape, cluster, limits = (
        spec["model"].get("architecture"),
        spec["cluster"],
        spec.get("constraints", {}),
    )
    cluster.pop(draw(st.sampled_from(["nodes", "maxNodes"])), None)
    for name in ("gpusPerNode", "gpusPerPod"):
        cluster.pop(name, None)
    if not {"nodes", "maxNodes"} & cluster.keys():
        cluster["maxNodes"] = draw(st.sampled_from(COMPOSITE))
    for name in (
        draw(st.sets(st.sampled_from(sorted(limits)), min_size=len(limits) // 2)) if limits else ()
    ):
        limits.pop(name)
    for bound in limits.values():
        if isinstance(bound, dict):
            for name in ("min", "max") if "values" in bound else ("min",):
                bound.pop(name, None)
    spec["training"].pop("frameworkVersion", None)
    for name in ("current", "targetRef", "throughput", "slo", "failureAssumptions", "checkpoint"):
        if draw(st.integers(0, 3)):
            spec.pop(name, None)
    if shape is None or "experts" not in shape:
        spec["training"].pop("imbalance", None)
    if shape is not None:
        _mend_shape(shape, draw)


def _mend_shape(shape, draw):
    shape["kvHeads"] = draw(
        st.sampled_from([n for n in GIANTS["kvHeads"] if shape["heads"] % n == 0])
    )
    if "latentAttention" in shape:
        shape.pop("kvHeads")
        shape.pop("headDim", None)
    if "experts" in shape:
        shape["experts"] |= {
            "topK": min(8, shape["experts"]["count"]),
            "denseLayers": 0,
            "imbalance": "1.2",
        }
    if shape["hiddenSize"] < shape["heads"]:
        shape["hiddenSize"] = 128 * shape["heads"]


def _of(given, *names):
    return {name: given[name] for name in names if name in given}
