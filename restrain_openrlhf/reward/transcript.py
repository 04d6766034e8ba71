"""From a query as the client decodes it (prompt and response, special tokens included) to the response's answer."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.answers import extract
from restrain_openrlhf.errors import ConfigError, DataError

# How much of a prompt's end must be found where the host cut or re-spelled its beginning.
PROMPT_END = 200


@dataclass(frozen=True)
class Response:
    """One rollout's response: its final answer (None: missing or truncated), and whether it was truncated."""

    answer: str | None
    truncated: bool


@dataclass(frozen=True)
class ResponseReader:
    """Reads responses. `ends` are the texts of the tokens that stop generation; without any, none counts as truncated.

    `special` are the texts of all special tokens: the hook decodes without them, and so does this.
    """

    ends: tuple[str, ...]
    special: tuple[str, ...] = ()

    def read(self, query: str, prompt: str) -> Response:
        """The response of a query. Raises DataError where the query is not its prompt and something after it."""
        return self.read_response(response_of(query, prompt))

    def read_response(self, response: str, finished: bool | None = None) -> Response:
        """As `read`, of a response alone; `finished` where the caller knows it.

        The client sends no truncation flag. Generation that stopped by itself ends with a stop token, which is in the
        text because the client decodes with skip_special_tokens=False; anything else hit the length limit.
        """
        truncated = not finished if finished is not None else bool(self.ends) and not response.endswith(self.ends)
        return Response(None if truncated else extract(self._plain(response)), truncated)

    def answer(self, query: str, prompt: str) -> str | None:
        """The answer of an evaluation row, read as it stands, as the file reward does."""
        return extract(self._plain(response_of(query, prompt)))

    def _plain(self, text: str) -> str:
        tokens = sorted({*self.special, *self.ends}, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, tokens)), "", text) if tokens else text


def response_of(query: str, prompt: str) -> str:
    """What follows the prompt; a prompt whose beginning the host cut (too long) is found by its end."""
    if query.startswith(prompt):
        return query[len(prompt) :]
    end = prompt[-PROMPT_END:]
    found = query.find(end) if end else -1
    if found < 0:
        raise DataError(
            "The query does not begin with its prompt, so the response cannot be told from it. The tokenizer changes "
            "the prompt's text when it encodes and decodes it: use a tokenizer that does not."
        )
    return query[found + len(end) :]


def reader_of_model(folder: Path) -> ResponseReader:
    """The reader for a Hugging Face folder, from tokenizer.json, generation_config.json and tokenizer_config.json.

    vLLM stops at the tokenizer's own end token and at all of generation_config.json. Raises ConfigError where these
    files do not say which tokens those are.
    """
    added = _json(folder / "tokenizer.json").get("added_tokens", [])
    texts = {token["id"]: token["content"] for token in added}
    ends = {texts[number] for number in _end_ids(folder) if number in texts} | _end_names(folder)
    if not ends:
        raise ConfigError(f"{folder}: says nowhere which token ends a response. Give service.end_of_text instead.")
    return ResponseReader(tuple(sorted(ends)), tuple(token["content"] for token in added if token.get("special")))


def _end_ids(folder: Path) -> list[int]:
    found = [
        _json(folder / name, needed=False).get("eos_token_id") for name in ("generation_config.json", "config.json")
    ]
    return [number for ids in found if ids is not None for number in (ids if isinstance(ids, Iterable) else [ids])]


def _end_names(folder: Path) -> set[str]:
    end = _json(folder / "tokenizer_config.json", needed=False).get("eos_token")
    return {end["content"] if isinstance(end, Mapping) else str(end)} if end else set()


def _json(path: Path, needed: bool = True) -> Mapping[str, Any]:
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
