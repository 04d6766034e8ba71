"""Writes the whole model of a LoRA run from its adapter and the base model that the adapter was trained on."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.data.model_files import ADAPTER, ADAPTER_CONFIG, ensure_model
from restrain_openrlhf.data.outputs import output_folder
from restrain_openrlhf.errors import ConfigError


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter's folder, as peft writes it, and its base model: a hub id or a local folder."""

    folder: Path
    base: str


def find_adapter(path: Path, base: str | None = None) -> Adapter:
    """The adapter of a run, of a model's folder, or in `path` itself. Raises ConfigError where there is none.

    `base` takes the place of the base model that the adapter names.
    """
    places = (path / "model" / ADAPTER, path / ADAPTER, path)
    found = next((place for place in places if (place / ADAPTER_CONFIG).exists()), None)
    if found is None:
        raise ConfigError(
            f"{path}: holds no LoRA adapter (looked for {ADAPTER_CONFIG} in it, in {ADAPTER}/ and model/{ADAPTER}/). A "
            "run has one if it was trained with ds.lora.rank and has ended; the model of any other run is whole."
        )
    named = json.loads((found / ADAPTER_CONFIG).read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not (base or named):
        raise ConfigError(f"{found / ADAPTER_CONFIG}: names no base model. Name it: --base MODEL.")
    return Adapter(found, base or named)


def merge(adapter: Adapter, out: Path, dtype: str = "bfloat16") -> None:
    """Write base and adapter as one model, with its tokenizer, to `out`, which is there when it is complete.

    They are added in fp32. In bf16 the sum is rounded as it was for vLLM in training (hook/fixes/lora.py), which keeps
    the update; fp32 has the sum itself.

    Raises ConfigError where `out` exists, and where the base model cannot be had or is another than the adapter's.
    """
    if out.exists():
        raise ConfigError(f"{out}: exists. Name another folder with --out, or remove it.")
    try:
        ensure_model(adapter.base)
    except ConfigError as error:
        raise ConfigError(
            f"{error} It is the base of the adapter in {adapter.folder}; --base MODEL names it at another place."
        ) from error
    out = output_folder(out)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _write(adapter, partial, dtype)
    partial.rename(out)


def _write(adapter: Adapter, folder: Path, dtype: str) -> None:
    import torch  # noqa: PLC0415 - torch, peft and transformers cost seconds
    from peft import PeftModel  # noqa: PLC0415
    from peft.tuners.lora import LoraLayer  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    from restrain_openrlhf.hook.fixes.lora import rounded  # noqa: PLC0415

    base = AutoModelForCausalLM.from_pretrained(adapter.base, dtype=torch.float32, trust_remote_code=True)
    try:
        model = PeftModel.from_pretrained(base, str(adapter.folder))
    except (RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{adapter.folder}: does not fit {adapter.base} ({str(error).splitlines()[0]}). Name the model that it was "
            "trained on: --base MODEL."
        ) from error
    adapted = {name for name, layer in base.named_modules() if isinstance(layer, LoraLayer)}
    whole, to = model.merge_and_unload(), getattr(torch, dtype)
    with torch.no_grad():
        sums = {f"{name}.weight": rounded(whole.get_submodule(name).weight, to, name) for name in adapted}
    # Of the model itself, whose tied weights are one tensor and are written once.
    whole.to(to).save_pretrained(folder, state_dict={**whole.state_dict(), **sums})
    has_tokenizer = (adapter.folder / "tokenizer_config.json").exists()
    source = str(adapter.folder) if has_tokenizer else adapter.base
    AutoTokenizer.from_pretrained(source, trust_remote_code=True).save_pretrained(folder)
