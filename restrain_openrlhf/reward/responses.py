"""From a query as OpenRLHF's client decodes it (prompt, response, special tokens) to the response's final answer."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.answers import extract
from restrain_openrlhf.errors import ConfigError, DataError

# How much of a prompt's end must be found where the host cut or re-spelled its beginning.
PROMPT_END = 200


@dataclass(frozen=True)
class Response:
    """A response's final answer, read as it stands (None: missing), and whether the length limit cut it off."""

    answer: str | None
    truncated: bool


@dataclass(frozen=True)
class StopTokens:
    """`ends` are the texts of the tokens that stop generation, `special` those of all special tokens."""

    ends: tuple[str, ...]
    special: tuple[str, ...] = ()


def read_response(query: str, prompt: str, tokens: StopTokens) -> Response:
    """The response of a query. Raises DataError where the query is not its prompt and something after it.

    The client sends no truncation flag. Generation that stopped by itself ends with a stop token, which is in the text
    because the client decodes with skip_special_tokens=False; anything else hit the length limit. The agent decodes
    without special tokens, and so does this.
    """
    response = _after_prompt(query, prompt)
    marks = "|".join(map(re.escape, sorted({*tokens.special, *tokens.ends}, key=len, reverse=True)))
    plain = re.sub(marks, "", response) if marks else response
    return Response(extract(plain), truncated=bool(tokens.ends) and not response.endswith(tokens.ends))


def _after_prompt(query: str, prompt: str) -> str:
    # The host cuts a prompt that is too long at its beginning.
    known = prompt if query.startswith(prompt) else prompt[-PROMPT_END:]
    found = query.find(known)
    if found < 0:
        what = "The query does not begin with its prompt: the tokenizer changes the prompt's text when it encodes and"
        raise DataError(f"{what} decodes it. Use one that does not.")
    return query[found + len(known) :]


def stop_tokens(folder: Path) -> StopTokens:
    """Of a model's folder (Hugging Face): vLLM stops at the tokenizer's end token and at all of generation_config.json.

    Raises ConfigError where these files do not say which tokens those are.
    """
    added = _json(folder / "tokenizer.json").get("added_tokens", [])
    names = ("generation_config.json", "config.json", "tokenizer_config.json")
    files = [_json(folder / name) for name in names if (folder / name).is_file()]
    found = [file.get("eos_token_id") for file in files]
    ids = [number for one in found for number in (one if isinstance(one, list) else [one])]
    ends = {token["content"] for token in added if token["id"] in ids}
    ends |= {end["content"] if isinstance(end, dict) else end for file in files if (end := file.get("eos_token"))}
    if not ends:
        raise ConfigError(f"{folder}: says nowhere which token ends a response. Give service.end_of_text instead.")
    return StopTokens(tuple(sorted(ends)), tuple(token["content"] for token in added if token.get("special")))


def _json(path: Path) -> dict[str, Any]:
    needed = "service.model must be a Hugging Face model's folder."
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}). {needed}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: is not a JSON object. {needed}")
    return document
