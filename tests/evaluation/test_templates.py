"""Prompts letter by letter as Qwen2.5-Math's evaluation makes them, and the choice of a template."""

import json
from pathlib import Path

import pytest

from restrain_openrlhf.answers import MATHEMATICS, parse_kind
from restrain_openrlhf.data.benchmarks import load_benchmark
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.job import TEMPLATES, benchmark_prompts, choose_template, end_tokens, render, worded
from tests.reference.toy import word_tokenizer

LLAMA = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
    "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)


def test_llama_is_asked_through_its_own_chat_template():
    text = render(
        worded(TEMPLATES["chat-boxed"], MATHEMATICS.instruction), "What is 1+1?", word_tokenizer(chat_template=LLAMA)
    )
    assert text == (
        "<s><|start_header_id|>user<|end_header_id|>\n\nWhat is 1+1?\nPlease reason step by step, and put your final "
        "answer within \\boxed{}.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )


QUESTION = {"id": "1", "problem": "Which river?"}
CODE = {"id": "1", "problem": "def f(x):\n", "answer": "def check(f): pass", "entry_point": "f"}


@pytest.mark.parametrize("template", ["qwen25-math-cot", "chat-boxed"])
@pytest.mark.parametrize(
    ("name", "row", "asked"),
    [
        (
            "choice",
            {**QUESTION, "options": ["Po", "Ems"], "answer": "B"},
            'End with "The answer is" and the letter of one option.',
        ),
        ("text", {**QUESTION, "answer": "Ems"}, "between <answer> and </answer>."),
        ("code", CODE, "Write the whole program in one fenced block of Python."),
    ],
)
def test_other_kinds_are_asked_for_what_they_are_read_in(write_jsonl, name, row, asked, template):
    loaded = load_benchmark(str(write_jsonl("own.jsonl", [row])), asked=parse_kind({"name": name}))
    (prompt,) = benchmark_prompts(loaded, TEMPLATES[template], word_tokenizer(chat_template=LLAMA))
    assert asked in prompt.text
    assert "boxed" not in prompt.text
    assert "step by step" not in prompt.text


@pytest.mark.parametrize(
    ("words", "chat", "name"),
    [(("<|im_start|>",), LLAMA, "qwen25-math-cot"), (("<|eot_id|>",), LLAMA, "chat-boxed"), ((), None, "cot")],
)
def test_auto_takes_the_family_of_the_model(words, chat, name):
    assert choose_template("auto", word_tokenizer(*words, chat_template=chat)).name == name


def test_end_marks_are_those_the_model_has():
    assert end_tokens(word_tokenizer("<|im_end|>", "a", "<|endoftext|>")) == (2, 4)
    assert end_tokens(word_tokenizer("a")) == ()


def test_a_text_with_braces_is_a_template_as_training_has_it():
    given = "<s>{}\nThink, and box it: \\boxed{{}}."
    template = choose_template(given, tokenizer=None)
    assert render(template, "What is {x}?", tokenizer=None) == given.format("What is {x}?")


@pytest.mark.parametrize("text", ["{} {}x{a}", "{} {", "{} {1}"])
def test_a_template_of_other_braces_is_refused(text):
    with pytest.raises(ConfigError, match="Double them"):
        choose_template(text, tokenizer=None)


# What `construct_prompt` of Qwen2.5-Math's own evaluation makes of these rows, byte for byte.
GOLDEN = json.loads((Path(__file__).parent / "golden" / "qwen25_math.json").read_text(encoding="utf-8"))
KEYS = sorted({(each["benchmark"], each["template"]) for each in GOLDEN["prompts"]})


@pytest.mark.parametrize(("benchmark", "template"), KEYS)
def test_prompts_are_those_of_their_code(write_jsonl, benchmark, template):
    loaded = load_benchmark(benchmark, write_jsonl(f"{benchmark}.jsonl", GOLDEN["rows"][benchmark]).parent)
    ours = benchmark_prompts(loaded, TEMPLATES[template], None)
    theirs = [each for each in GOLDEN["prompts"] if (each["benchmark"], each["template"]) == (benchmark, template)]
    assert theirs
    assert [ours[each["place"]].text for each in theirs] == [each["text"] for each in theirs]


def test_the_golden_file_has_every_template_that_is_theirs():
    # `chat-boxed` is `boxed` inside the tokenizer's own chat template.
    assert {template for _, template in KEYS} == set(TEMPLATES) - {"chat", "chat-boxed", "plain"}
