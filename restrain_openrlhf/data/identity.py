"""Identity of texts, sets of texts and models, by which files that belong together find each other."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from restrain_openrlhf.data.file_digests import file_digests
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.model_files import refuse_adapter

# Beginnings of a local model's fingerprint: of whole files, and of an earlier version, which read samples of them.
FILES = "files:"
SAMPLED = re.compile(r"\bfolder:[0-9a-f]{64}\b")
# Configuration and code, weights and their index, what ends a response, and how a text becomes tokens.
MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.bin",
    "*.index.json",
    "*.py",
    "tokenizer*",
    "*.model",
    "vocab.*",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.*",
)


def text_hash(text: str) -> str:
    """Identity of a prompt or a problem: SHA-256 of its UTF-8 text, in hex."""
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def set_digest(texts: Iterable[str]) -> str:
    """Identity of a set of texts, whatever their order: SHA-256 over their sorted hashes, in hex."""
    return hashlib.sha256("\n".join(sorted(text_hash(text) for text in texts)).encode()).hexdigest()


def model_fingerprint(model: str, revision: str | None = None) -> str:
    """`commit:<sha>` for a hub id (from the local cache when offline), `files:<digest>` for a local path.

    Raises ConfigError where the model cannot be found, or is an adapter alone.
    """
    folder = model_folder(model)
    return f"{FILES}{folder_digest(folder)}" if folder is not None else f"commit:{hub_commit(model, revision)}"


def model_folder(model: str) -> Path | None:
    """The local folder that a model is; None for a hub id. Raises as `model_fingerprint`."""
    folder = Path(model)
    if folder.is_dir():
        refuse_adapter(folder)
        return folder
    if folder.is_absolute() or model.startswith("."):
        raise ConfigError(f"{model}: no such model folder. Check actor.model_name_or_path.")
    return None


def folder_digest(folder: Path) -> str:
    """SHA-256 over the names and the whole contents of the model's files (`model_digests`), in hex.

    Raises ConfigError for a folder that holds no model.
    """
    lines = [f"{digest}  {name}\n" for name, digest in sorted(model_digests(folder).items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def model_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file that a policy's responses depend on, by its name: MODEL_FILES.

    Raises ConfigError for a folder that holds no model.
    """
    if not (folder / "config.json").exists():
        raise ConfigError(f"{folder}: holds no config.json, so it is not a Hugging Face model folder.")
    files = {path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()}
    return {path.name: digest for path, digest in file_digests(sorted(files)).items()}


def earlier_fingerprint(text: str) -> str:
    """Sentences to follow a refusal where the text has a fingerprint of the earlier kind in it; else nothing."""
    if not SAMPLED.search(text):
        return ""
    return (
        " A fingerprint folder:... is of an earlier version, which read the first and last MiB of each file and could "
        f"not tell all models apart. Where you know that the model is the same, write its {FILES}... in the place of "
        "the other into the .provenance.json beside the file; else make the file again."
    )


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
