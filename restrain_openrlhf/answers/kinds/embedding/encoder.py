"""Runs a sentence embedding model on the CPU, one text at a time, so that vectors depend only on their text.

Its libraries are imported when the first model is loaded.
"""

import json
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from restrain_openrlhf.errors import ConfigError, GraderError, reason_of

Pooling = Literal["mean", "cls"]
MOST_KNOWN = 1 << 15
MOST_TOKENS = 512
# Files of sentence-transformers: the list of modules, the settings of pooling, and the longest text.
MODULES, POOLING, LENGTH = "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"
SERVED = ("Transformer", "Pooling", "Normalize")
PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.model")


@dataclass
class Encoder:
    """A loaded model with a cache of its vectors. Safe to use from several threads."""

    tokenizer: Any
    model: Any
    pooling: Pooling
    most_tokens: int
    _known: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def vectors(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors, of shape (texts, dimension). Raises GraderError if a vector is zero or not finite."""
        with self._lock:
            for text in texts:
                if text not in self._known:
                    vector = self._vector(text)
                    if len(self._known) >= MOST_KNOWN:
                        self._known.clear()
                    self._known[text] = vector
            return np.stack([self._known[text] for text in texts])

    def _vector(self, text: str) -> NDArray[np.float32]:
        import torch  # noqa: PLC0415

        readable = text.encode("utf-8", "replace").decode()
        inputs = self.tokenizer(readable, return_tensors="pt", truncation=True, max_length=self.most_tokens)
        with torch.inference_mode():
            states = self.model(**inputs).last_hidden_state[0].float()
        pooled: NDArray[np.float32] = (states[0] if self.pooling == "cls" else states.mean(0)).numpy()
        length = float(np.linalg.norm(pooled))
        if not np.isfinite(length) or length == 0:
            raise GraderError(
                f"The embedding model's vector for {text[:80]!r} is zero or not finite. Its weights are damaged, or "
                "it is not a sentence embedding model: name another under `answers.model`."
            )
        return pooled / length


_LOADING = threading.Lock()


def encoder(model: str, revision: str | None) -> Encoder:
    """The model of a folder or the hub, loaded once per process. Raises ConfigError if it cannot be used."""
    with _LOADING:
        return _loaded(model, revision)


@lru_cache(maxsize=1)
def _loaded(model: str, revision: str | None) -> Encoder:
    try:
        import torch  # noqa: PLC0415
        from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"The kind of answer `embedding` needs torch and transformers ({error}). Install them: "
            "pip install 'restrain-openrlhf[embedding]'."
        ) from error
    folder = _folder(model, revision)
    pooling = _pooling(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        loaded = AutoModel.from_pretrained(folder, dtype=torch.float32, use_safetensors=True, device_map=None)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ConfigError(
            f"{model}: cannot be loaded as an embedding model ({reason_of(error)}). Check answers.model: it must be a "
            "folder or a hub id with config.json, a tokenizer and *.safetensors, and must not need code of its own."
        ) from error
    return Encoder(tokenizer, loaded.eval(), pooling, _most_tokens(folder, loaded, tokenizer))


def _folder(model: str, revision: str | None) -> Path:
    if Path(model).is_dir():
        return Path(model)
    if Path(model).is_absolute() or model.startswith("."):
        raise ConfigError(f"{model}: no such folder. Correct answers.model.")
    return _downloaded(model, revision)


def _downloaded(model: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=list(PATTERNS)))
    except (OSError, ValueError, RuntimeError, HFValidationError) as error:
        raise ConfigError(
            f"{model}: is not a folder, and could not be downloaded ({reason_of(error)}). Check answers.model and the "
            "connection."
        ) from error


def _pooling(folder: Path) -> Pooling:
    """How tokens' vectors are pooled into a sentence's; by their mean if the folder does not say.

    Raises ConfigError for a model with more layers after the transformer, or with another pooling.
    """
    modules = [str(module.get("type")).rpartition(".")[2] for module in _json(folder / MODULES, [])]
    modes = {name for name, chosen in _json(folder / POOLING, {}).items() if chosen and name.startswith("pooling_mode")}
    if not set(modules) <= set(SERVED) or not modes <= {"pooling_mode_mean_tokens", "pooling_mode_cls_token"}:
        raise ConfigError(
            f"{folder}: is made of the modules {', '.join(modules)} with pooling {', '.join(sorted(modes))}. Only a "
            "transformer pooled by the mean of its tokens or by its first token is supported. Name another model "
            "under `answers.model`."
        )
    return "cls" if modes == {"pooling_mode_cls_token"} else "mean"


def _most_tokens(folder: Path, model: Any, tokenizer: Any) -> int:
    said = _json(folder / LENGTH, {}).get("max_seq_length") or MOST_TOKENS
    places = getattr(model.config, "max_position_embeddings", MOST_TOKENS)
    return int(min(said, places, tokenizer.model_max_length, MOST_TOKENS))


def _json(file: Path, otherwise: Any) -> Any:
    with suppress(OSError, ValueError):
        return json.loads(file.read_text(encoding="utf-8"))
    return otherwise
