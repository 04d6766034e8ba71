"""Identity of texts, sets of texts and models, by which files that belong together find each other."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.model_files import refuse_adapter

SAMPLED_BYTES = 1 << 20


def text_hash(text: str) -> str:
    """Identity of a prompt or a problem: SHA-256 of its UTF-8 text, in hex."""
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def set_digest(texts: Iterable[str]) -> str:
    """Identity of a set of texts, whatever their order: SHA-256 over their sorted hashes, in hex."""
    return hashlib.sha256("\n".join(sorted(text_hash(text) for text in texts)).encode()).hexdigest()


def model_fingerprint(model: str, revision: str | None = None) -> str:
    """`commit:<sha>` for a hub id (from the local cache when offline), `folder:<digest>` for a local path.

    Raises ConfigError where the model cannot be found, or is an adapter alone.
    """
    folder = Path(model)
    if folder.is_dir():
        refuse_adapter(folder)
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
