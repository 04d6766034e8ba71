"""The shape of a dense decoder, from its config.json if there is one, else from the package's own list."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, PositiveInt, ValidationError

from restrain_openrlhf.config.documents import shipped_yaml
from restrain_openrlhf.errors import ConfigError

SHAPES = Path(__file__).with_name("shapes.yaml")
# Model types whose layers are all alike: attention and a gated MLP.
DENSE = ("llama", "mistral", "qwen2", "qwen3")
REMEDY = (
    "Name a folder that holds the model's config.json (actor.model_name_or_path). Covered are dense models "
    f"({', '.join(DENSE)})."
)


class NoEstimateError(ConfigError):
    """The shape of a model is unknown, or the arithmetic does not cover the model or the flags."""


class ModelShape(BaseModel, frozen=True, extra="ignore"):
    """The entries of a Hugging Face config.json that determine the size of a dense decoder."""

    model_type: str
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt
    vocab_size: PositiveInt
    tie_word_embeddings: bool = False
    # Biases of q, k, v and o. Qwen2's q, k and v have theirs without it.
    attention_bias: bool = False

    @property
    def q_size(self) -> int:
        """The width of all query heads together."""
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """The width of all key heads together, which is also that of all value heads."""
        return self.num_key_value_heads * self.head_dim

    @property
    def projections(self) -> Mapping[str, tuple[int, int]]:
        """The weight matrices of a layer by their Hugging Face names, as (inputs, outputs)."""
        hidden, inner, q, kv = self.hidden_size, self.intermediate_size, self.q_size, self.kv_size
        return {
            "q_proj": (hidden, q),
            "k_proj": (hidden, kv),
            "v_proj": (hidden, kv),
            "o_proj": (q, hidden),
            "gate_proj": (hidden, inner),
            "up_proj": (hidden, inner),
            "down_proj": (inner, hidden),
        }

    @property
    def embedding(self) -> int:
        """The number of parameters of the embedding, which is the largest tensor."""
        return self.vocab_size * self.hidden_size

    @property
    def has_head_norms(self) -> bool:
        """Whether a norm for each head follows the projections of queries and keys."""
        return self.model_type == "qwen3"

    @property
    def parameters(self) -> int:
        """The number of all parameters. A tied output head counts once."""
        heads = 1 if self.tie_word_embeddings else 2
        return heads * self.embedding + self.num_hidden_layers * self._layer + self.hidden_size

    @property
    def _layer(self) -> int:
        weights = sum(inputs * outputs for inputs, outputs in self.projections.values())
        biases = 0
        if self.model_type == "qwen2" or self.attention_bias:
            biases = self.q_size + 2 * self.kv_size + (self.hidden_size if self.model_type != "qwen2" else 0)
        head_norms = 2 * self.head_dim if self.has_head_norms else 0
        return weights + biases + 2 * self.hidden_size + head_norms


def shape_of(model: str) -> ModelShape:
    """The shape of a model (hub id or folder). Nothing is downloaded.

    Raises NoEstimateError if the shape is not known here, and for a model that is not a dense decoder.
    """
    if model in shipped() and not Path(model).is_dir():
        return shipped()[model]
    if (path := model_file(model, "config.json")) is None:
        raise NoEstimateError(f"{model}: its shape is not known here, and nothing is fetched to learn it. {REMEDY}")
    return _read(path)


@cache
def shipped() -> Mapping[str, ModelShape]:
    """The shapes of the models that presets name."""
    entries = shipped_yaml(SHAPES)
    return {name: ModelShape.model_validate(entry) for name, entry in entries.items()}


def _read(path: Path) -> ModelShape:
    """The shape in a config.json. Raises NoEstimateError for a model that is not covered."""
    try:
        given = {key: value for key, value in json.loads(path.read_bytes()).items() if value is not None}
    except (OSError, ValueError, AttributeError) as error:
        raise NoEstimateError(f"{path}: cannot be read as a model's config.json ({error}). {REMEDY}") from None
    kind, experts = given.get("model_type"), [key for key in given if "expert" in key and given[key]]
    if kind not in DENSE or experts:
        what = f"has experts ({experts[0]})" if experts else f"is of the type {kind!r}"
        raise NoEstimateError(f"{path}: {what}, which is not covered. {REMEDY}")
    heads = given.get("num_attention_heads")
    defaults = {"num_key_value_heads": heads}
    if isinstance(heads, int) and isinstance(given.get("hidden_size"), int):
        defaults["head_dim"] = given["hidden_size"] // heads
    try:
        return ModelShape.model_validate({**defaults, **given})
    except ValidationError as error:
        first = error.errors()[0]
        raise NoEstimateError(f"{path}: {first['loc'][0]}: {first['msg'].lower()}. {REMEDY}") from None


def model_file(model: str, name: str) -> Path | None:
    """A file of a model's folder, or of the hub's cache from an earlier download. None where it is in neither."""
    if (own := Path(model) / name).is_file():
        return own
    try:
        from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - not in a plain installation

        # It raises ValueError for a text that cannot be a hub id.
        found = try_to_load_from_cache(model, name)
    except (ImportError, ValueError):
        return None
    return Path(found) if isinstance(found, str) else None
