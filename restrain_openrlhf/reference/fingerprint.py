"""Identity of a model: a hub commit, or a digest of a local folder, so that u_x is never read off another model."""

import hashlib
from pathlib import Path

from restrain_openrlhf.errors import ConfigError

SAMPLED_BYTES = 1 << 20


def model_fingerprint(model: str, revision: str | None = None) -> str:
    """`commit:<sha>` for a hub id (from the local cache when offline), `folder:<digest>` for a local path.

    Raises ConfigError where the model cannot be found.
    """
    folder = Path(model)
    if folder.is_dir():
        return f"folder:{folder_digest(folder)}"
    if folder.is_absolute() or model.startswith("."):
        raise ConfigError(f"{model}: no such model folder. Check actor.model_name_or_path.")
    return f"commit:{hub_commit(model, revision)}"


def folder_digest(folder: Path) -> str:
    """Over the names, sizes, and first and last MiB of the configuration and weight files.

    Weights differ everywhere after any training step, so samples tell two checkpoints apart without reading them.
    Raises ConfigError for a folder that holds no model.
    """
    files = sorted(path for pattern in ("config.json", "*.safetensors", "*.bin") for path in folder.glob(pattern))
    if not (folder / "config.json").exists():
        raise ConfigError(f"{folder}: holds no config.json, so it is not a Hugging Face model folder.")
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}:".encode())
        with path.open("rb") as file:
            digest.update(file.read(SAMPLED_BYTES))
            file.seek(max(0, size - SAMPLED_BYTES))
            digest.update(file.read(SAMPLED_BYTES))
    return digest.hexdigest()


def hub_commit(model: str, revision: str | None = None) -> str:
    """The commit a hub id resolves to. Raises ConfigError where neither the hub nor the cache knows it."""
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - not needed for local models
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        config = Path(hf_hub_download(model, "config.json", revision=revision))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(
            f"{model}: is neither a local model folder nor a model the hub or its local cache can give ({error}). "
            "Check actor.model_name_or_path, or download the model first."
        ) from error
    return config.parent.name
