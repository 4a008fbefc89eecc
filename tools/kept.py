"""Bytes that PyTorch keeps for the backward pass of a layer, and bytes of weights, into
tests/data/kept_counted.json; and copies of the logits at the peak of the loss.

Run it with an environment of its own that has torch, transformers, peft and bitsandbytes,
gigabytes, so in no lock: `make oracle-kept ORACLE=PATH/bin/python`. Small models run on the CPU
under hooks that see every saved tensor; a storage counts once, and weights do not. What a layer
keeps is the difference between a model with three layers and one with one, halved.
"""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

os.environ["HF_HUB_OFFLINE"] = "1"

try:
    import bitsandbytes
    import peft
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config
except ImportError as error:
    sys.exit(f"kept: {error.name} is missing; run it with a Python that has it")

FILE: Final = Path(__file__).parents[1] / "tests" / "data" / "kept_counted.json"
SHAPE: Final = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 1024,
}
SETS: Final = {
    "q,v": ["q_proj", "v_proj"],
    "attention": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "mlp": ["gate_proj", "up_proj", "down_proj"],
    "all": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "o": ["o_proj"],
    "down": ["down_proj"],
    "gate,up": ["gate_proj", "up_proj"],
}
PLAIN: Final = {
    "targets": "attention",
    "rank": 8,
    "dtype": "fp32",
    "base": "same",
    "checkpointing": False,
    "dora": False,
    "sequences": 2,
    "tokens": 128,
    "kv_heads": 4,
    "family": "llama",
}


def cases() -> list[dict[str, Any]]:
    """Configurations whose bytes are counted."""
    cases = [
        {"targets": targets, "dtype": dtype, "base": base}
        for targets in ("", *SETS)
        for dtype in ("fp32", "bf16")
        if targets or dtype == "bf16"
        for base in ("same", "nf4", "int8")
        if targets or base == "same"
        if base == "same" or (dtype == "bf16" and targets in {"q,v", "attention", "all", "down"})
    ]
    cases += [
        {"targets": targets, "dtype": dtype, "checkpointing": True}
        for targets in ("", "attention", "all")
        for dtype in ("fp32", "bf16")
    ]
    cases = [case for case in cases if case["targets"] or case["dtype"] == "bf16"]
    cases += [{"targets": targets, "rank": 64} for targets in ("q,v", "all")]
    cases += [{"targets": targets, "dora": True} for targets in ("q,v", "all")]
    cases += [{"targets": targets, "kv_heads": 8} for targets in SETS]
    cases += [
        {"targets": targets, "sequences": 1, "tokens": 512} for targets in ("attention", "all")
    ]  # four documents in one row
    cases += [{"targets": targets, "family": "qwen2"} for targets in ("attention", "all")]
    apart: list[dict[str, Any]] = [
        {},
        {"kv_heads": 8},
        {"family": "qwen2"},
        {"sequences": 1, "tokens": 512},
    ]
    apart.append({"checkpointing": True})
    cases += [{"targets": "", "dtype": "autocast", **more} for more in apart]
    return [PLAIN | case for case in cases]


def adapted_model(case: dict[str, Any], layers: int) -> torch.nn.Module:
    """A model with its adapters."""
    kind = {"llama": LlamaConfig, "qwen2": Qwen2Config}[case["family"]]
    shape = SHAPE | {"num_hidden_layers": layers, "num_key_value_heads": case["kv_heads"]}
    config = kind(**shape | {"vocab_size": case.get("vocabulary", SHAPE["vocab_size"])})
    dtype = torch.bfloat16 if case["dtype"] == "bf16" else torch.float32
    config._attn_implementation = "sdpa"  # noqa: SLF001
    model = AutoModelForCausalLM.from_config(config).to(dtype)
    if case["base"] != "same":
        packed(model.model.layers, case["base"], dtype)
    if case["targets"]:
        lora = LoraConfig(
            r=case["rank"],
            target_modules=SETS[case["targets"]],
            use_dora=case["dora"],
            lora_dropout=0.0,
        )
        model.enable_input_require_grads()
        model = get_peft_model(model, lora, autocast_adapter_dtype=False).to(
            dtype if case["base"] == "same" else None
        )
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.data = weight.data.to(dtype)
    if case["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": True})
    model.train()
    return model


def packed(module: torch.nn.Module, base: str, dtype: torch.dtype) -> None:
    """Put matrices of a few bits in the place of linear layers."""
    for name, inner in module.named_children():
        if not isinstance(inner, torch.nn.Linear):
            packed(inner, base, dtype)
            continue
        wide = inner.in_features, inner.out_features
        if base == "nf4":
            new: Any = bitsandbytes.nn.Linear4bit(
                *wide, bias=False, compute_dtype=dtype, quant_type="nf4", compress_statistics=True
            )
        else:
            new = bitsandbytes.nn.Linear8bitLt(*wide, bias=False, has_fp16_weights=False)
        new.load_state_dict(inner.state_dict())
        setattr(module, name, new.to("cpu"))


class SavedTensor:
    """A saved tensor; it lives as long as the graph that saved it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def kept_bytes(case: dict[str, Any], layers: int) -> tuple[int, int]:
    """Bytes of saved tensors, and of the weights of a model with its adapters."""
    model = adapted_model(case, layers)
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    own |= {buffer.untyped_storage().data_ptr() for buffer in model.buffers()}
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    for weight in model.parameters():
        state = getattr(weight, "quant_state", None)
        if state is not None:
            weights += state.absmax.numel() * state.absmax.element_size()
            if state.nested:
                weights += state.state2.absmax.numel() * state.state2.absmax.element_size()
            for tensor in (
                state.absmax,
                state.code,
                state.offset,
                *((state.state2.absmax, state.state2.code) if state.nested else ()),
            ):
                if isinstance(tensor, torch.Tensor):
                    own.add(tensor.untyped_storage().data_ptr())
    seen: weakref.WeakSet[SavedTensor] = weakref.WeakSet()

    def pack(tensor: torch.Tensor) -> SavedTensor:
        held = SavedTensor(tensor)
        seen.add(held)
        return held

    tokens = torch.randint(0, 512, (case["sequences"], case["tokens"]))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held.tensor), autocast(case):
        loss = model(tokens, labels=tokens, use_cache=False).loss
    storages = {held.tensor.untyped_storage() for held in seen}
    sizes = {
        storage.data_ptr(): storage.nbytes()
        for storage in storages
        if storage.data_ptr() not in own
    }
    del loss
    return sum(sizes.values()), weights


def autocast(case: dict[str, Any]) -> torch.autocast:
    """Products in bf16 over weights in fp32, where a configuration says so."""
    return torch.autocast("cpu", torch.bfloat16, enabled=case["dtype"] == "autocast")


class LiveStorage(TorchDispatchMode):
    """Bytes of the storages that operators made and that are still there."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.most = 0

    def __torch_dispatch__(
        self, operator: Callable[..., Any], _: Any, given: tuple[Any, ...] = (),
        named: Mapping[str, Any] | None = None
    ) -> Any:  # fmt: skip
        made = operator(*given, **(named or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                key = storage._cdata  # noqa: SLF001
                if key not in self.sizes:
                    self.sizes[key] = storage.nbytes()
                    weakref.finalize(storage, self.sizes.pop, key, None)
        self.most = max(self.most, sum(self.sizes.values()))
        return made


def logit_copies(dtype: str) -> float:
    """fp32 copies of the logits at the peak, by two vocabularies and two numbers of tokens."""
    most_bytes: dict[tuple[int, int], int] = {}
    for vocabulary in (2048, 4096):
        for tokens in (512, 1024):
            case = PLAIN | {"targets": "", "dtype": dtype, "vocabulary": vocabulary}
            model, ids = adapted_model(case, 1), torch.randint(0, vocabulary, (1, tokens))
            with (alive := LiveStorage()):
                with autocast(case):
                    loss = model(ids, labels=ids, use_cache=False).loss
                loss.backward()
            most_bytes[vocabulary, tokens] = alive.most
    wide = (
        most_bytes[4096, 1024]
        - most_bytes[4096, 512]
        - most_bytes[2048, 1024]
        + most_bytes[2048, 512]
    )
    return wide / (4 * 2048 * 512)


def main() -> None:
    """Count all configurations and write the table."""
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    rows = []
    for case in cases():
        try:
            (small, light), (large, heavy) = kept_bytes(case, 1), kept_bytes(case, 3)
        except (RuntimeError, NotImplementedError, ValueError) as error:
            print(f"{case}: {error}", file=sys.stderr)
            continue
        if case["dora"]:  # what is as large as its matrix, whatever the tokens, is left out
            twice = case | {"tokens": 2 * case["tokens"]}
            small, large = (
                kept_bytes(twice, layers)[0] - had for layers, had in ((1, small), (3, large))
            )
        rows.append(case | {"kept": (large - small) / 2, "weights": (heavy - light) / 2})
    versions = {
        package.__name__: package.__version__.partition("+")[0]
        for package in (torch, transformers, peft, bitsandbytes)
    }
    copies = {dtype: logit_copies(dtype) for dtype in ("autocast", "bf16")}
    text = json.dumps(
        {"versions": versions, "shape": SHAPE, "rows": rows, "logit copies": copies}, indent=1
    )
    FILE.write_text(text + "\n", encoding="utf-8")
    print(f"{FILE.name}: {len(rows)} configurations")


if __name__ == "__main__":
    main()
