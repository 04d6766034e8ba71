"""Which texts end a response, and which are special tokens', by the files of a model's folder (Hugging Face)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.errors import ConfigError


@dataclass(frozen=True)
class StopTokens:
    """`ends` are the texts of the tokens that stop generation, `special` those of all special tokens."""

    ends: tuple[str, ...]
    special: tuple[str, ...] = ()


def stop_tokens(folder: Path) -> StopTokens:
    """From tokenizer.json: vLLM stops at the tokenizer's own end token and at all of generation_config.json.

    Raises ConfigError where these files do not say which tokens those are.
    """
    added = _json(folder / "tokenizer.json").get("added_tokens", [])
    texts = {token["id"]: token["content"] for token in added}
    ends = {texts[number] for number in _end_ids(folder) if number in texts} | _end_names(folder)
    if not ends:
        raise ConfigError(f"{folder}: says nowhere which token ends a response. Give service.end_of_text instead.")
    return StopTokens(tuple(sorted(ends)), tuple(token["content"] for token in added if token.get("special")))


def _end_ids(folder: Path) -> list[int]:
    names = ("generation_config.json", "config.json")
    found = [_json(folder / name, needed=False).get("eos_token_id") for name in names]
    return [number for ids in found if ids is not None for number in (ids if isinstance(ids, list) else [ids])]


def _end_names(folder: Path) -> set[str]:
    end = _json(folder / "tokenizer_config.json", needed=False).get("eos_token")
    return {end["content"] if isinstance(end, dict) else str(end)} if end else set()


def _json(path: Path, needed: bool = True) -> dict[str, Any]:
    if not path.is_file() and not needed:
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({error}). service.model must be a Hugging Face model's folder."
        ) from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: is not a JSON object. service.model must be a Hugging Face model's folder.")
    return document
