"""Short texts that mean much the same, by clusters of a sentence embedding model's vectors.

The model runs on the CPU, one text at a time, so that a vector depends only on its text. Its libraries are imported
when the first model is loaded.
"""

import json
import threading
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from restrain_openrlhf.answers.kind import Row, number_classes, register
from restrain_openrlhf.answers.kinds.text import ComparedTexts
from restrain_openrlhf.errors import ConfigError, GraderError, reason_of

Vector = NDArray[np.float32]
# Similarities are rounded, so that ties do not depend on a processor's rounding.
DECIMALS = 6
# Time and memory of clustering grow with the cube and the square of the number of texts.
MOST_ALIKE = 1000
MOST_KNOWN = 1 << 15
MOST_TOKENS = 512
# The modules of sentence-transformers that are served, and the files of a model that are downloaded.
SERVED = {"Transformer", "Pooling", "Normalize"}
PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model"]
# A model is loaded once, and its tokenizer cannot serve two threads at a time.
_LOCK = threading.Lock()


@register
class Embedding(ComparedTexts):
    """Short texts are equal if a sentence embedding model of your choice puts them into the same cluster.

    The different texts of a group are clustered by the cosine of their vectors. The model runs on the CPU, once for
    each different text of a process. Needs the extra `embedding`.
    """

    version: ClassVar[str] = "1"

    name: Literal["embedding"] = "embedding"
    model: Annotated[str, Field(min_length=1)]
    """A sentence embedding model: a folder, or a hub id such as sentence-transformers/all-MiniLM-L6-v2."""
    threshold: Annotated[float, Field(gt=-1, le=1)]
    """Two clusters are merged if the cosine similarity of their least similar texts is at least this. There is no
    default, because the right value depends on the model."""
    prefix: str = ""
    """Text put before every answer, if the model was trained with one: "query: " for E5."""
    revision: str | None = None
    """The hub's revision of the model; null: the newest."""

    def check_machine(self) -> None:
        """Load the model."""
        with _LOCK:
            encoder_of(self.model, self.revision)

    def compared(self, texts: Sequence[str], row: Row) -> list[int]:
        """The cluster of each text.

        Raises ConfigError without the model or its libraries, GraderError without a vector.
        """
        vectors = [vector_of(self.prefix + text, self.model, self.revision) for text in texts]
        return clusters(np.stack(vectors), self.threshold)

    def alike(self, keys: Sequence[str | None]) -> list[int | None]:
        """Clusters of the first MOST_ALIKE different keys; a later key is alike only to itself."""
        texts = sorted(list(dict.fromkeys(filter(None, keys)))[:MOST_ALIKE])
        numbers = self.compared(texts, {}) if len(texts) > 1 else [0] * len(texts)
        found: dict[str, Hashable] = dict(zip(texts, numbers, strict=True))
        return number_classes([None if key is None else found.get(key, key) for key in keys])


def clusters(vectors: Vector, threshold: float) -> list[int]:
    """The cluster of each of n unit vectors, of shape (n, dimension), by complete linkage.

    The two most similar clusters are joined, at a tie the first such pair, while the similarity of their least similar
    members is at least the threshold. That of clusters that are gone is -inf.
    """
    exact = vectors.astype(np.float64)
    similarity = np.round(exact @ exact.T, DECIMALS)
    np.fill_diagonal(similarity, -np.inf)
    label = np.arange(len(vectors))
    while len(vectors) > 1:
        kept, gone = sorted(divmod(int(similarity.argmax()), len(vectors)))
        if similarity[kept, gone] < threshold:
            break
        similarity[kept] = similarity[:, kept] = np.minimum(similarity[kept], similarity[gone])
        similarity[gone] = similarity[:, gone] = similarity[kept, kept] = -np.inf
        label[label == gone] = kept
    return [int(each) for each in label]


@dataclass(frozen=True)
class Encoder:
    """A loaded model. A text's vector is that of its first token, or else the mean of all."""

    tokenizer: Any
    model: Any
    by_first_token: bool
    most_tokens: int


@lru_cache(maxsize=MOST_KNOWN)
def vector_of(text: str, model: str, revision: str | None) -> Vector:
    """The text's unit vector, of shape (dimension,), by the model of a folder or the hub.

    Raises ConfigError if the model cannot be used, and GraderError if the vector is zero or not finite.
    """
    with _LOCK:
        encoder = encoder_of(model, revision)
        readable = text.encode("utf-8", "replace").decode()
        inputs = encoder.tokenizer(readable, return_tensors="pt", truncation=True, max_length=encoder.most_tokens)
        states = encoder.model(**inputs).last_hidden_state[0].float()
    return _normalised((states[0] if encoder.by_first_token else states.mean(0)).numpy(), text)


@lru_cache(maxsize=1)
def encoder_of(model: str, revision: str | None) -> Encoder:
    """The model, loaded once per process. Raises ConfigError if it cannot be used."""
    try:
        import torch  # noqa: PLC0415
        from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"The kind of answer `embedding` needs torch and transformers ({error}). Install them: "
            "pip install 'restrain-openrlhf[embedding]'."
        ) from error
    try:
        folder = _folder(model, revision)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        loaded = AutoModel.from_pretrained(folder, dtype=torch.float32, use_safetensors=True, device_map=None).eval()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ConfigError(
            f"{model}: cannot be loaded as an embedding model ({reason_of(error)}). Check answers.model and the "
            "connection: it must be a folder that is there or a hub id, with config.json, a tokenizer and "
            "*.safetensors, and must not need code of its own."
        ) from error
    most_tokens = _most_tokens(folder, loaded, tokenizer)
    return Encoder(tokenizer, loaded.requires_grad_(False), _is_pooled_by_first_token(folder), most_tokens)


def _folder(model: str, revision: str | None) -> Path:
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    return Path(snapshot_download(model, revision=revision, allow_patterns=PATTERNS))


def _normalised(pooled: Vector, text: str) -> Vector:
    """The vector with length 1. Raises GraderError if it is zero or not finite."""
    length = float(np.linalg.norm(pooled))
    if not np.isfinite(length) or length == 0:
        raise GraderError(
            f"The embedding model's vector for {text[:80]!r} is zero or not finite. Its weights are damaged, or it is "
            "not a sentence embedding model: name another under `answers.model`."
        )
    return pooled / length


def _is_pooled_by_first_token(folder: Path) -> bool:
    """Whether a text's vector is that of its first token, and not the mean of all, the default.

    Raises ConfigError for a model with more layers after the transformer, or with another pooling.
    """
    modules = [str(module.get("type")).rpartition(".")[2] for module in _json(folder / "modules.json", [])]
    settings = _json(folder / "1_Pooling/config.json", {})
    modes = {name for name, chosen in settings.items() if chosen and name.startswith("pooling_mode")}
    if not set(modules) <= SERVED or not modes <= {"pooling_mode_mean_tokens", "pooling_mode_cls_token"}:
        raise ConfigError(
            f"{folder}: is made of the modules {', '.join(modules)} with pooling {', '.join(sorted(modes))}. Only a "
            "transformer pooled by the mean of its tokens or by its first token is supported. Name another model "
            "under `answers.model`."
        )
    return modes == {"pooling_mode_cls_token"}


def _most_tokens(folder: Path, model: Any, tokenizer: Any) -> int:
    said = _json(folder / "sentence_bert_config.json", {}).get("max_seq_length") or MOST_TOKENS
    places = getattr(model.config, "max_position_embeddings", MOST_TOKENS)
    return int(min(said, places, tokenizer.model_max_length, MOST_TOKENS))


def _json(file: Path, otherwise: Any) -> Any:
    with suppress(OSError, ValueError):
        return json.loads(file.read_text(encoding="utf-8"))
    return otherwise
