"""`-o json` keeps to its published schemas, and the schemas name every key."""

import json
from pathlib import Path

import pytest

import mofa_model as mofa

SCHEMAS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "schema"
JOB = {
    "model": "llama3-8b",
    "gpu": "h100",
    "sequence_length": 8192,
    "global_batch_size": 64,
    "framework": "megatron",
}
RUN = {"nodes": 64, "step": "10s", "save": "2s"}
NAMES = {"string": str, "integer": int, "number": int | float, "boolean": bool, "null": type(None)}


def broken(value, schema, at="$"):
    """What of a value its schema does not allow, or does not name."""
    if "anyOf" in schema:
        tried = [list(broken(value, one, at)) for one in schema["anyOf"]]
        return min(tried, key=len)
    if (kind := schema.get("type")) is None:
        return []
    if kind == "object":
        if not isinstance(value, dict):
            return [f"{at}: no object"]
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        found = [
            f"{at}.{name}: is missing" for name in schema.get("required", ()) if name not in value
        ]
        for name, inner in value.items():
            if name not in known and others is None:
                found.append(f"{at}.{name}: is not in the schema")
            else:
                found += broken(inner, known.get(name, others), f"{at}.{name}")
        return found
    if kind == "array":
        if not isinstance(value, list):
            return [f"{at}: no array"]
        return [
            line
            for n, one in enumerate(value)
            for line in broken(one, schema["items"], f"{at}[{n}]")
        ]
    right = isinstance(value, NAMES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    return [] if right else [f"{at}: {value!r} is no {kind}"]


def schema(name):
    return json.loads((SCHEMAS / f"{name}.v1.json").read_text("utf-8"))


def answers():
    """Answers that have every key between them."""
    yield (
        "advise",
        mofa.advise(**JOB, gpus=16, current="tp=4,pp=2", launch="megatron", probe=1, tokens="1T"),
    )
    yield "advise", mofa.advise(**JOB, max_nodes=4, launch="nemo", top=1, recovery="in-place")
    yield (
        "advise",
        mofa.advise(
            model="llama3-405b", gpu="h100", gpus=8, sequence_length=8192, global_batch_size=8
        ),
    )
    yield "explain", mofa.explain(**JOB, gpus=16, strategy="tp=2,pp=2")
    yield "explain", mofa.explain(**JOB, gpus=16, strategy="tp=2,pp=2", evidence=True)
    yield (
        "ettr",
        mofa.ettr(**RUN, curve=3, hang="15min:0.3", total_steps=1e5, deadline="60d", spares=4),
    )
    yield "ettr", mofa.ettr(**RUN, rate=0, prior_weight=float("inf"))
    yield "varied-ettr", mofa.ettr(**RUN, vary="step=10s,20s")
    yield "simulate", mofa.simulate(**RUN, runs=5, timeline=5)
    yield "simulate", mofa.simulate(**RUN, runs=5, recovery="in-place")
    yield "simulated-pool", mofa.simulate(**RUN, runs=2, jobs="a:8:1d", duration="3d")
    yield "sweep", mofa.sweep(**JOB, gpus=16, strategy="tp=2", vary={"mbs": [1, 2, 3]})
    yield "which", mofa.which(model="llama3-8b", tokens="1M", gpu="l4,rtx-3090")
    yield "which", mofa.which(model="llama3.1-405b", tokens="1M", gpu="t4", most_gpus=1)


def test_every_answer_keeps_to_its_schema_and_every_key_is_seen():
    seen, wrong = {}, []
    for name, found in answers():
        told = json.loads(json.dumps(found.to_dict()))
        seen.setdefault(name, set()).update(told)
        wrong += [f"{name}: {line}" for line in broken(told, schema(name))]
    assert wrong == []
    kept = {
        path.name.removesuffix(".v1.json"): set(
            schema(path.name.removesuffix(".v1.json"))["properties"]
        )
        for path in SCHEMAS.glob("*.json")
    }
    assert {name: keys - seen[name] for name, keys in kept.items() if keys - seen[name]} == {
        "advise": {"launch_refused"}
    }


@pytest.mark.parametrize(
    "change", [{"ettr": None}, {"curve": 3}, {"new": 1}, {"level": True}, {"paper": {}}]
)
def test_a_document_that_is_otherwise_is_found(change):
    right = mofa.ettr(**RUN).to_dict()
    assert broken(right, schema("ettr")) == []
    assert broken({**right, **change}, schema("ettr"))
