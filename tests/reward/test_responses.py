"""From the client's query to an answer: the prompt is taken off, and truncation is seen by the missing end token."""

import pytest

from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.reward.responses import Response, StopTokens, read_response, stop_tokens
from tests.conftest import ROOT

TOKENS = StopTokens(("<|im_end|>",), ("<|im_end|>", "<|box|>"))


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"so \boxed{34}<|im_end|>", Response("34", truncated=False)),
        (r"so \boxed{34} and", Response("34", truncated=True)),
        (r"so \boxed{3<|box|>4}<|im_end|>", Response("34", truncated=False)),
        ("I give up<|im_end|>", Response(None, truncated=False)),
        ("", Response(None, truncated=True)),
    ],
)
def test_the_answer_is_the_responses_own(response, expected):
    assert read_response(r"Put it in \boxed{}. " + response, r"Put it in \boxed{}. ", TOKENS) == expected


def test_without_known_ends_nothing_counts_as_truncated():
    assert read_response(r"p\boxed{3} and", "p", StopTokens(())) == Response("3", truncated=False)


def test_a_prompt_whose_beginning_was_cut_is_found_by_its_end():
    prompt = r"\boxed{1}" * 100 + " what is 1+1?"
    assert read_response(prompt[300:] + r" \boxed{2}", prompt, StopTokens(())).answer == "2"
    assert read_response(prompt[300:] + " none", prompt, StopTokens(())).answer is None


@pytest.mark.parametrize(("query", "prompt"), [("other text", "prompt"), ("", "p")])
def test_a_query_without_its_prompt_is_refused(query, prompt):
    with pytest.raises(DataError, match="does not begin with its prompt"):
        read_response(query, prompt, TOKENS)


def test_a_models_folder_says_how_a_response_ends():
    assert stop_tokens(ROOT / "restrain_openrlhf" / "demo" / "models" / "addition") == StopTokens(
        ("<eos>",), ("<pad>", "<eos>", "<bos>", "<unk>")
    )


def test_every_end_token_of_generation_counts(tmp_path):
    added = [{"id": 7, "content": "<|im_end|>", "special": True}, {"id": 8, "content": "<|end|>", "special": True}]
    (tmp_path / "tokenizer.json").write_text(f'{{"added_tokens": {added}}}'.replace("'", '"').replace("True", "true"))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    assert stop_tokens(tmp_path).ends == ("<|end|>", "<|im_end|>")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), ("[1]", "is not a JSON object"), ("{}", "says nowhere which token ends")],
)
def test_a_folder_that_does_not_say_it_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        stop_tokens(tmp_path)
