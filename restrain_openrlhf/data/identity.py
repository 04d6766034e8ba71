"""Identity of texts, models and files, by which files that belong together find each other, and their provenance."""

import hashlib
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from restrain_openrlhf.data.model_files import refuse_adapter
from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.errors import ConfigError, DataError, RestrainError

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
# Below it a file is read sooner than a cache would be worth its entry.
CACHED_FROM = 8 << 20
# A file that was written to so short a time ago may be written to again within the same tick of its file system's
# clock, so that nothing would tell the two contents apart.
SETTLED_SECONDS = 2.0
READERS = 4
DIGEST_BYTES = 32


def text_hash(text: str) -> str:
    """Identity of a prompt or a problem: SHA-256 of its UTF-8 text, in hex."""
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def set_digest(texts: Iterable[str]) -> str:
    """Identity of a set of texts, whatever their order: SHA-256 over their sorted hashes, in hex."""
    digests = Digests()
    for text in texts:
        digests.add(text)
    return digests.of_set()


class Digests:
    """The SHA-256 of many texts, 32 bytes of memory each."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def __len__(self) -> int:
        return len(self._bytes) // DIGEST_BYTES

    def add(self, text: str) -> None:
        self._bytes += hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).digest()

    def alike(self, places: NDArray[np.intp] | None = None) -> list[list[int]]:
        """The places of two or more equal texts, in the order of their first ones; of some `places` alone if given."""
        firsts = self._rows().view(np.uint64)[:: DIGEST_BYTES // 8]
        known = np.arange(len(self)) if places is None else places
        order = np.argsort(numbers := firsts[known])
        # Of few the first 8 bytes are another's too, and they alone are compared as a whole.
        again = numbers[order[1:]] == numbers[order[:-1]]
        groups: dict[bytes, list[int]] = {}
        for place in known[np.union1d(order[1:][again], order[:-1][again])].tolist():
            groups.setdefault(self._rows()[place].tobytes(), []).append(place)
        return [group for group in groups.values() if len(group) > 1]

    def of_set(self, places: NDArray[np.intp] | None = None) -> str:
        """`set_digest` of the texts, or of those at these places."""
        rows, found = self._rows(), hashlib.sha256()
        chosen = rows.copy() if places is None else rows[places]
        chosen.sort()
        for place, digest in enumerate(chosen.view(f"V{DIGEST_BYTES}")):
            found.update((b"\n" if place else b"") + digest.tobytes().hex().encode())
        return found.hexdigest()

    def _rows(self) -> NDArray[np.bytes_]:
        """The digests where they are; while such an array lives, no text can be added."""
        return np.frombuffer(self._bytes, dtype=f"S{DIGEST_BYTES}")


def model_fingerprint(model: str) -> str:
    """`commit:<sha>` for a hub id (from the local cache when offline), `files:<digest>` for a local path.

    The digest is SHA-256 over the names and the whole contents of the model's files (`model_digests`), in hex.
    Raises ConfigError where the model cannot be found, or is an adapter alone.
    """
    folder = model_folder(model)
    if folder is None:
        return f"commit:{hub_commit(model)}"
    lines = [f"{digest}  {name}\n" for name, digest in sorted(model_digests(folder).items())]
    return f"files:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"


def model_folder(model: str) -> Path | None:
    """The local folder that a model is; None for a hub id. Raises as `model_fingerprint`."""
    folder = Path(model)
    if folder.is_dir():
        refuse_adapter(folder)
        return folder
    if folder.is_absolute() or model.startswith("."):
        raise ConfigError(f"{model}: no such model folder. Check actor.model_name_or_path.")
    return None


def model_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file that a policy's responses depend on, by its name: MODEL_FILES.

    Raises ConfigError for a folder that holds no model.
    """
    if not (folder / "config.json").exists():
        raise ConfigError(f"{folder}: holds no config.json, so it is not a Hugging Face model folder.")
    files = {path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()}
    return {path.name: digest for path, digest in file_digests(sorted(files)).items()}


def hub_commit(model: str) -> str:
    """The commit a hub id resolves to. Raises ConfigError where neither the hub nor the cache knows it."""
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - not needed for local models
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        config = Path(hf_hub_download(model, "config.json"))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(
            f"{model}: is not a local model folder, and neither the hub nor its local cache has it ({error}). Check "
            "actor.model_name_or_path, or download the model first."
        ) from error
    return config.parent.name


def file_digests(files: Iterable[Path]) -> dict[Path, str]:
    """As `file_digest`, of several files at the same time."""
    paths = list(files)
    with ThreadPoolExecutor(READERS) as readers:
        return dict(zip(paths, readers.map(file_digest, paths), strict=True))


def file_digest(path: Path) -> str:
    """SHA-256 of the whole file, in hex, as sha256sum prints it. Raises OSError where it cannot be read.

    A large file's is kept under its path, size, times of change and inode.
    """
    before = _state(path)
    entry = _cache_entry(path, before)
    # Without a cache that can be read or written, a digest is as right and costs its time again.
    with suppress(OSError):
        return entry.read_text(encoding="ascii").strip()
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    has_settled = time.time_ns() - max(before[1:3]) > SETTLED_SECONDS * 10**9
    if before[0] >= CACHED_FROM and has_settled and _state(path) == before:
        with suppress(OSError, DataError):
            entry.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(entry) as text:
                text.write(found)
    return found


def _state(path: Path) -> tuple[int, ...]:
    """What changes with a file's content. The time of change of the inode cannot be set back, as the other can."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


def _cache_entry(path: Path, state: tuple[int, ...]) -> Path:
    """The small file that has the digest of a file in this state, if any has."""
    return cache_folder() / "digests" / text_hash("\n".join([str(path.resolve()), *map(str, state)]))


def cache_folder() -> Path:
    """Where this package keeps what it can make again. It need not be there, nor be writable."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # A user without a home has no cache: nothing is ever there.
    return Path(base if os.path.isabs(base) else os.devnull) / "restrain-openrlhf"


class Provenance(BaseModel):
    """What every kind of provenance can do; its fields are those of the file.

    `about` names such files in errors, and `remedy` says what to do where the provenance is damaged. Fields in
    `may_differ` do not keep two files apart. `error` is what is raised.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: ClassVar[str]
    remedy: ClassVar[str]
    error: ClassVar[type[RestrainError]]
    may_differ: ClassVar[frozenset[str]] = frozenset()

    def difference(self, other: Self) -> str | None:
        """The first field in which the two differ, with both values; None if there is none."""
        for name in type(self).model_fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and name not in self.may_differ:
                return f"{name}: {mine!r} against {theirs!r}"
        return None

    def write(self, file: Path) -> None:
        with whole_file(provenance_path(file)) as text:
            text.write(self.text)

    @property
    def text(self) -> str:
        return self.model_dump_json(indent=2) + "\n"

    @classmethod
    def of(cls, file: Path) -> Self:
        """The provenance of `file`. Raises `error` where it is missing or damaged."""
        path = provenance_path(file)
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise cls.error(
                f"{path}: no such file. {cls.about} need their provenance file beside them: copy both files."
            ) from None
        except ValidationError as error:
            raise cls.error(f"{path}: {error.errors()[0]['msg']}. {cls.remedy}") from None


def provenance_path(file: Path) -> Path:
    """`ref.jsonl` has its provenance in `ref.jsonl.provenance.json`."""
    return file.with_name(file.name + ".provenance.json")
