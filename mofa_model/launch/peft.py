"""Adapters of a script under Accelerate: PEFT's own file, and transformers' file of the format of
the frozen weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from mofa_model.errors import InputError
from mofa_model.launch.answer import OpenFile
from mofa_model.launch.formats import document_of
from mofa_model.launch.tuning import FineTuning, base_of, on, targets_of, whole

FILE: Final = "adapter_config.json"
"""What `LoraConfig.from_pretrained` reads in a folder."""
BASE: Final = "quantization_config.json"
"""What `BitsAndBytesConfig.from_dict` takes."""
NOTES: Final = {
    FILE: f"the script reads {FILE} by LoraConfig.from_pretrained and calls get_peft_model",
    BASE: f"the script gives {BASE} to BitsAndBytesConfig.from_dict, and that to from_pretrained",
}


def files_of(tuning: FineTuning) -> dict[str, str]:
    """The files that describe adapters to PEFT."""
    documents: dict[str, Mapping[str, Any]] = {
        FILE: {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": tuning.model,
            "r": tuning.rank,
            "lora_alpha": tuning.alpha,
            "lora_dropout": tuning.dropout,
            "target_modules": tuning.modules,
            "use_dora": tuning.magnitudes,
        }
    }
    if tuning.base == "int8":
        documents[BASE] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    elif tuning.base:
        documents[BASE] = {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": tuning.base == "nf4-double",
            "bnb_4bit_compute_dtype": tuning.dtype,
            "bnb_4bit_quant_storage": tuning.dtype,  # FSDP shares pieces of one type alone
        }
    return {name: json.dumps(document, indent=2) for name, document in documents.items()}


def read(path: str, open_file: OpenFile, optimizer: str) -> FineTuning | None:
    """The adapters that files beside `beside` describe; None where there are none."""
    folder = path.rpartition("/")[0]
    adapters, base = (
        _document(f"{folder}/{name}" if folder else name, open_file) for name in NOTES
    )
    rank = whole(adapters, "r", 8)
    if str(adapters.get("peft_type")) != "LORA" or not rank:
        return None
    is_double = on(base.get("bnb_4bit_use_double_quant"))
    return FineTuning(
        model=str(adapters.get("base_model_name_or_path") or ""),
        rank=rank,
        targets=targets_of(adapters.get("target_modules"), "target_modules"),
        base=base_of(base, "load_in_4bit", "load_in_8bit", is_double),
        magnitudes=on(adapters.get("use_dora")),
        alpha=whole(adapters, "lora_alpha", 8) or 0,
        dropout=float(adapters.get("lora_dropout") or 0.0),
        optimizer=optimizer,
    )


def _document(path: str, open_file: OpenFile) -> Mapping[str, Any]:
    """A file as it stands; empty where there is none, or another one."""
    try:
        return document_of(open_file(path) or "{}", path)
    except (InputError, LookupError):
        return {}
