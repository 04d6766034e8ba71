"""Refuses a model whose files do not fit together, so that it would be trained wrongly; loads no weights."""

import json
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.documents import CHAT_TEMPLATE
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.memory.shape import model_file

ROLES = ("eos_token", "pad_token", "bos_token", "unk_token")


def unfit_files(flags: Flags, *_: object) -> str | None:
    """The end token, the chat template or the vocabulary of the tokenizer does not fit the model.

    A model that is not on this machine yet is checked when its tokenizer is loaded.
    """
    model = flags["actor.model_name_or_path"]
    return why_unfit(model, bool(flags[CHAT_TEMPLATE])) if model else None


def why_unfit(model: str, in_chat_template: bool) -> str | None:
    """Why a model (hub id or folder) would be trained wrongly, and what mends it; None if it fits, or is not here.

    vLLM ends a response at the tokenizer's end token and at those of the generation settings, a published model only at
    the latter. OpenRLHF pads with the end token where there is no padding token (utils/utils.py, get_tokenizer).
    """
    config, tokenizer, template = _json(model, "config.json"), _json(model, "tokenizer.json"), template_of(model)
    named = {**_json(model, "special_tokens_map.json"), **_json(model, "tokenizer_config.json")}
    if "eos_token" not in named:
        named = {**_of_the_class(model), **named}
    config = config.get("text_config") or config
    vocabulary, added = tokenizer.get("model", {}).get("vocab", {}), tokenizer.get("added_tokens", [])
    # Unigram tokenizers list their tokens in order, each with its score.
    tokens = vocabulary if isinstance(vocabulary, dict) else {each[0]: place for place, each in enumerate(vocabulary)}
    tokens = {**tokens, **{each["content"]: each["id"] for each in added}}
    if not (config and tokens):
        return None
    roles = {role: text.get("content") if isinstance(text := named.get(role), dict) else text for role in ROLES}
    rows, end = config.get("vocab_size"), roles["eos_token"]
    # Marks that nothing writes may lie beyond the rows, as one for images does in a text model's tokenizer.
    unused = {each["content"] for each in added if each.get("special") and each["content"] not in template}
    largest = max(tokens.keys() - (unused - set(roles.values())), key=tokens.__getitem__)
    if rows is not None and tokens[largest] >= rows:
        return (
            f"{model}: its tokenizer has {largest!r} as number {tokens[largest]}, but the model has only {rows} rows "
            f"(vocab_size in config.json). Call model.resize_token_embeddings({tokens[largest] + 1}) and save it "
            "again, or copy the tokenizer that belongs to it."
        )
    stated = _json(model, "generation_config.json").get("eos_token_id") or config.get("eos_token_id")
    numbers = [stated] if isinstance(stated, int) else stated or []
    ends = [token for token, number in tokens.items() if number in numbers]
    stops = " and ".join(map(repr, ends)) or "no token"
    if "eos_token" not in named:
        # transformers, which alone knows the default of the tokenizer's class, is not here, or cannot load it.
        return None
    if end is None or (end not in ends and (numbers or Path(model).is_dir())):
        has = "no token, so that nothing would end or pad it" if end is None else f"{end!r} (number {tokens.get(end)})"
        return (
            f"{model}: its tokenizer ends a response with {has}, but its generation settings with {stops}. Set "
            "eos_token in tokenizer_config.json and eos_token_id in generation_config.json to the token that ends it."
        )
    if in_chat_template and template and not any(each in template for each in ("eos_token", end, *ends)):
        return (
            f"{model}: its chat template writes no end token, neither {end!r} nor another of its generation settings, "
            f"so that a response would not end where the template ends it. Set {CHAT_TEMPLATE} to false for a base "
            "model; otherwise set eos_token in tokenizer_config.json and eos_token_id in generation_config.json to the "
            "template's end."
        )
    return None


def _of_the_class(model: str) -> Mapping[str, Any]:
    """The special tokens of a tokenizer whose class knows them, and not its files; empty where it cannot be loaded."""
    file, settings = model_file(model, "tokenizer.json"), model_file(model, "tokenizer_config.json")
    # A folder may do without settings. In the hub's cache, they are not there yet.
    if file and (settings or Path(model).is_dir()) and find_spec("transformers"):
        from transformers import AutoTokenizer  # noqa: PLC0415 - costs seconds, and most files name their tokens

        with suppress(OSError, ValueError):
            tokenizer = AutoTokenizer.from_pretrained(file.parent, local_files_only=True)
            return {role: getattr(tokenizer, role) for role in ROLES}
    return {}


def template_of(model: str) -> str:
    """The chat template in the files of a model's tokenizer, or several in a row; empty if there is none here."""
    if (own := model_file(model, "chat_template.jinja")) is not None:
        return own.read_text(encoding="utf-8")
    given = _json(model, "tokenizer_config.json").get("chat_template") or ""
    return given if isinstance(given, str) else "".join(each["template"] for each in given)


def context_of(model: str) -> int | None:
    """The longest context of a model in tokens, from its config.json; None without that file or that entry."""
    found = _json(model, "config.json").get("max_position_embeddings")
    return found if isinstance(found, int) else None


def _json(model: str, name: str) -> Mapping[str, Any]:
    """What a file of the model says; empty without the file, and for a damaged one, which is refused when loaded."""
    path = model_file(model, name)
    with suppress(ValueError):
        found = {} if path is None else json.loads(path.read_bytes())
        return found if isinstance(found, dict) else {}
    return {}
