"""From a query as OpenRLHF's client decodes it (prompt, response, special tokens) to the response's final answer."""

import re
from dataclasses import dataclass

from restrain_openrlhf.answers import extract
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.stop_tokens import StopTokens

# How much of a prompt's end must be found where the host cut or re-spelled its beginning.
PROMPT_END = 200


@dataclass(frozen=True)
class Response:
    """A response's final answer, read as it stands (None: missing), and whether the length limit cut it off."""

    answer: str | None
    truncated: bool


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
    if query.startswith(prompt):
        return query[len(prompt) :]
    # The host cuts a prompt that is too long at its beginning.
    end = prompt[-PROMPT_END:]
    found = query.find(end)
    if found < 0:
        raise DataError(
            "The query does not begin with its prompt: the tokenizer changes the prompt's text when it encodes and "
            "decodes it. Use one that does not."
        )
    return query[found + len(end) :]
