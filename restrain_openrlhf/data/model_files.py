"""Makes sure that all files of a model are there: checks a folder, and downloads a hub id."""

import json
from pathlib import Path

from restrain_openrlhf.errors import ConfigError, reason_of

INDEX = "model.safetensors.index.json"
# The folder of a LoRA run's adapter inside that of the whole model, and the file that shows that a folder is an
# adapter.
ADAPTER = "adapter"
ADAPTER_CONFIG = "adapter_config.json"
# The files from which a policy is loaded. The hub often also has the same weights in other formats.
PATTERNS = ("*.json", "*.safetensors", "*.model", "*.jinja", "tokenizer*", "*.txt", "*.py")


def ensure_model(model: str) -> None:
    """Make sure that the model can be loaded. An interrupted download is resumed.

    Raises ConfigError for an incomplete folder, and where the model cannot be downloaded.
    """
    folder = Path(model)
    if not folder.is_dir():
        # A hub id is NAME or OWNER/NAME.
        if folder.is_absolute() or model.startswith(".") or model.count("/") > 1:
            raise ConfigError(f"{model}: no such model folder. Check the path.")
        folder = _download(model)
    refuse_incomplete(folder)


def refuse_incomplete(folder: Path) -> None:
    """Raises ConfigError naming the weight files that are missing or cut short."""
    if not (folder / "config.json").exists():
        raise ConfigError(f"{folder}: holds no config.json, so it is not a Hugging Face model folder.")
    names = _weight_files(folder)
    if not names:
        raise ConfigError(f"{folder}: holds no weights (*.safetensors or *.bin). Download or copy the model again.")
    missing = [name for name in names if not (folder / name).exists()]
    cut = [name for name in names if name not in missing and not _is_whole(folder / name)]
    if missing or cut:
        found = [f"missing: {', '.join(missing)}"] * bool(missing) + [f"cut short: {', '.join(cut)}"] * bool(cut)
        raise ConfigError(
            f"{folder}: {len(missing) + len(cut)} of {len(names)} weight files are incomplete ({'; '.join(found)}). A "
            "download or a copy was interrupted. Repeat it."
        )


def refuse_adapter(folder: Path) -> None:
    """Raises ConfigError for a folder that holds a LoRA adapter without its base model's weights."""
    if (folder / ADAPTER_CONFIG).exists():
        raise ConfigError(
            f"{folder}: holds a LoRA adapter, but a full model is needed. A run saves the full model in the folder "
            "above its adapter; otherwise merge the adapter with peft (docs/journeys/train.md#lora)."
        )


def _weight_files(folder: Path) -> list[str]:
    index = folder / INDEX
    if index.exists():
        return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    return sorted(path.name for pattern in ("*.safetensors", "*.bin") for path in folder.glob(pattern))


def _is_whole(path: Path) -> bool:
    """Whether a weight file is whole.

    Opening a safetensors file compares its header with its size; other files must not be empty.
    """
    if path.suffix != ".safetensors":
        return path.stat().st_size > 0
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - of the stack, which loads the model

    try:
        with safe_open(path, "numpy"):
            return True
    except SafetensorError:
        return False


def _download(model: str) -> Path:
    import httpx  # noqa: PLC0415 - what the hub's client raises without a network
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - not needed for local models
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        folder = Path(snapshot_download(model, allow_patterns=list(PATTERNS)))
        if not any(folder.glob("*.safetensors")):
            snapshot_download(model, allow_patterns=["*.bin"])
        return folder
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, httpx.HTTPError, OSError) as error:
        raise ConfigError(
            f"{model}: could not be downloaded ({reason_of(error)}). Check the name and the connection, then rerun: "
            "complete files are kept. Gated models need `hf auth login`."
        ) from error
