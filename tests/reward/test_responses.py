"""From the client's query to an answer: the prompt is taken off, and truncation is seen by the missing end token."""

import pytest

from restrain_openrlhf.demo.run import MODEL
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.reward.transcript import Response, ResponseReader, reader_of_model, response_of

READER = ResponseReader(("<|im_end|>",), ("<|im_end|>", "<|box|>"))


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"so \boxed{34}<|im_end|>", Response("34", truncated=False)),
        (r"so \boxed{34} and", Response(None, truncated=True)),
        (r"so \boxed{3<|box|>4}<|im_end|>", Response("34", truncated=False)),
        ("I give up<|im_end|>", Response(None, truncated=False)),
        ("", Response(None, truncated=True)),
    ],
)
def test_the_answer_of_a_finished_response_alone_counts(response, expected):
    assert READER.read(r"Put it in \boxed{}. " + response, r"Put it in \boxed{}. ") == expected


def test_without_known_ends_nothing_counts_as_truncated():
    assert ResponseReader(()).read(r"p\boxed{3} and", "p") == Response("3", truncated=False)


def test_who_knows_whether_it_finished_may_say_so():
    assert READER.read_response(r"\boxed{3}", finished=True) == Response("3", truncated=False)
    assert READER.read_response(r"\boxed{3}<|im_end|>", finished=False) == Response(None, truncated=True)


def test_a_prompt_whose_beginning_was_cut_is_found_by_its_end():
    prompt = "a" * 500 + " what is 1+1?"
    assert response_of(prompt[300:] + " 2", prompt) == " 2"


@pytest.mark.parametrize(("query", "prompt"), [("other text", "prompt"), ("", "p")])
def test_a_query_without_its_prompt_is_refused(query, prompt):
    with pytest.raises(DataError, match="does not begin with its prompt"):
        response_of(query, prompt)


def test_a_models_folder_says_how_a_response_ends():
    assert reader_of_model(MODEL) == ResponseReader(("<eos>",), ("<pad>", "<eos>", "<bos>", "<unk>"))


def test_every_end_token_of_generation_counts(tmp_path):
    added = [{"id": 7, "content": "<|im_end|>", "special": True}, {"id": 8, "content": "<|end|>", "special": True}]
    (tmp_path / "tokenizer.json").write_text(f'{{"added_tokens": {added}}}'.replace("'", '"').replace("True", "true"))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    assert reader_of_model(tmp_path).ends == ("<|end|>", "<|im_end|>")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), ("[1]", "is not a JSON object"), ("{}", "says nowhere which token ends")],
)
def test_a_folder_that_does_not_say_it_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        reader_of_model(tmp_path)
