"""Identities of texts, models and files, which show what belongs together; a model's files; provenance of files."""

import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, Field, ValidationError

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, parse_kind
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import ConfigError, DataError, RestrainError, no_such_file, reason_of

INDEX = "model.safetensors.index.json"
# The folder of a LoRA run's adapter inside that of the whole model, and the file that shows that a folder is an
# adapter.
ADAPTER = "adapter"
ADAPTER_CONFIG = "adapter_config.json"
# The files from which a policy is loaded. The hub often also has the same weights in other formats.
PATTERNS = ("*.json", "*.safetensors", "*.model", "*.jinja", "tokenizer*", "*.txt", "*.py")


def ensure_model(model: str) -> None:
    """Make sure that the model can be loaded. An interrupted download is resumed.

    Raises ConfigError for an incomplete folder, for an adapter, and where the model cannot be downloaded.
    """
    refuse_incomplete(model_folder(model) or _download(model))


def refuse_incomplete(folder: Path) -> None:
    """Raises ConfigError naming the weight files that are not whole, and for a folder without a model."""
    _refuse_no_model(folder)
    names = _weight_files(folder)
    if not names:
        raise ConfigError(f"{folder}: holds no weights (*.safetensors or *.bin). Download or copy the model again.")
    if broken := [name for name in names if not _is_whole(folder / name)]:
        raise ConfigError(
            f"{folder}: {len(broken)} of {len(names)} weight files are missing or cut short ({', '.join(broken)}). A "
            "download or a copy was interrupted. Repeat it."
        )


def _refuse_no_model(folder: Path) -> None:
    if not (folder / "config.json").exists():
        raise ConfigError(f"{folder}: holds no config.json, so it is not a Hugging Face model folder.")


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
    """Whether a weight file is there and whole.

    Opening a safetensors file compares its header with its size; other files must not be empty.
    """
    if path.suffix != ".safetensors" or not path.exists():
        return path.exists() and path.stat().st_size > 0
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - of the stack, which loads the model

    try:
        with safe_open(path, "numpy"):
            return True
    except SafetensorError:
        return False


def _download(model: str) -> Path:
    import httpx  # noqa: PLC0415 - what the hub's client raises without a network
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - not needed for local models

    try:
        folder = Path(snapshot_download(model, allow_patterns=list(PATTERNS)))
        if not any(folder.glob("*.safetensors")):
            snapshot_download(model, allow_patterns=["*.bin"])
        return folder
    except (OSError, ValueError, httpx.HTTPError) as error:
        raise ConfigError(
            f"{model}: could not be downloaded ({reason_of(error)}). Check the name and the connection, then rerun: "
            "complete files are kept. Gated models need `hf auth login`."
        ) from error


# The files on which a model's responses depend: configuration, code, weights, end tokens and tokenizer.
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
READERS = 4


def text_digest(text: str) -> bytes:
    """SHA-256 of a text in UTF-8, 32 bytes."""
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).digest()


def text_hash(text: str) -> str:
    """The identity of a prompt or a problem: its `text_digest`, in hex."""
    return text_digest(text).hex()


def set_digest(texts: Iterable[str]) -> str:
    """The identity of a set of texts in any order: SHA-256 over their sorted hashes, in hex."""
    return digest_of_set(map(text_digest, texts))


def digest_of_set(digests: Iterable[bytes]) -> str:
    """The `set_digest` of the texts with these digests."""
    return text_hash("\n".join(digest.hex() for digest in sorted(digests)))


def model_fingerprint(model: str) -> str:
    """A model's identity: `commit:<sha>` for a hub id (offline from the local cache), `files:<digest>` for a folder.

    The digest is SHA-256 over the names and contents of the model's files (`model_digests`), in hex. Raises ConfigError
    if the model cannot be found, or is only an adapter.
    """
    folder = model_folder(model)
    if folder is None:
        return f"commit:{hub_commit(model)}"
    lines = [f"{digest}  {name}\n" for name, digest in sorted(model_digests(folder).items())]
    return f"files:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"


def model_folder(model: str) -> Path | None:
    """The local folder of a model; None for a hub id. Raises what `model_fingerprint` raises."""
    folder = Path(model)
    if folder.is_dir():
        refuse_adapter(folder)
        return folder
    # A hub id is NAME or OWNER/NAME.
    if folder.is_absolute() or model.startswith(".") or model.count("/") > 1:
        raise ConfigError(f"{model}: no such model folder. Check the path, or actor.model_name_or_path.")
    return None


def model_digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each of MODEL_FILES, by the file's name.

    Raises ConfigError for a folder without a model.
    """
    _refuse_no_model(folder)
    files = {path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()}
    return {path.name: digest for path, digest in file_digests(sorted(files)).items()}


def hub_commit(model: str) -> str:
    """The commit that a hub id stands for. Raises ConfigError if neither the hub nor the cache knows the id."""
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - not needed for local models

    try:
        config = Path(hf_hub_download(model, "config.json"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{model}: is not a local model folder, and neither the hub nor its local cache has it ({error}). Check "
            "actor.model_name_or_path, or download the model first."
        ) from error
    return config.parent.name


def file_digests(files: Iterable[Path]) -> dict[Path, str]:
    """The `file_digest` of several files, read at the same time."""
    paths = list(files)
    with ThreadPoolExecutor(READERS) as readers:
        return dict(zip(paths, readers.map(file_digest, paths), strict=True))


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hex, as sha256sum prints it. Raises OSError if the file cannot be read.

    A process reads a file once, unless it changes: users can set the time of modification back, but not the inode's
    time of change.
    """
    found = path.stat()
    return _digest(path, (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev))


@cache
def _digest(path: Path, _state: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Provenance(BaseModel, frozen=True, extra="forbid"):
    """How a file of rollouts was made, written beside the file. Its fields and a subclass's are those of the file.

    `about` names such files in errors, and `remedy` says what to do where the provenance is damaged. Files whose
    provenance only differs in `may_differ` belong together. `error` is the class of errors that are raised.
    """

    about: ClassVar[str]
    remedy: ClassVar[str]
    error: ClassVar[type[RestrainError]]
    may_differ: ClassVar[frozenset[str]] = frozenset()

    model: str
    model_fingerprint: str
    template: str
    n: int
    temperature: float
    top_p: float
    max_new_tokens: int
    seed: int
    # The kind of answer with its settings. Earlier versions, which only knew mathematics, did not write it.
    answers: dict[str, Any] = Field(default_factory=lambda: MATHEMATICS.model_dump(mode="json"))

    @property
    def kind(self) -> AnswerKind:
        """The kind of answer. Raises ConfigError if no such kind is installed."""
        return parse_kind(self.answers)

    def difference(self, other: Self) -> str | None:
        """The first field in which the two differ, with both values; None if they do not differ."""
        for name in type(self).model_fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and name not in self.may_differ:
                return f"{name}: {mine!r} against {theirs!r}"
        return None

    def write(self, file: Path) -> None:
        write_whole(provenance_path(file), self.text)

    @property
    def text(self) -> str:
        return self.model_dump_json(indent=2) + "\n"

    @classmethod
    def of(cls, file: Path) -> Self:
        """The provenance of `file`. Raises `error` where it is missing or damaged, and DataError without `file`."""
        if not file.exists():
            raise DataError(no_such_file(file))
        path = provenance_path(file)
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise cls.error(
                f"{path}: no such file. {cls.about} need their provenance file beside them: copy both files."
            ) from None
        except ValidationError as error:
            raise cls.error(f"{path}: {error.errors()[0]['msg']}. {cls.remedy}") from None


def provenance_path(file: Path) -> Path:
    """The path of a file's provenance: `ref.jsonl.provenance.json` for `ref.jsonl`."""
    return file.with_name(file.name + ".provenance.json")
