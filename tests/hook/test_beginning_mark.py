"""Training and evaluation begin a prompt alike: with the mark that the tokenizer itself begins a text with, once."""

from itertools import product

import pytest

pytest.importorskip("transformers", reason="needs the training stack: make install")

from tokenizers.processors import TemplateProcessing

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.job import choose_template, render
from restrain_openrlhf.reference.offline_engine import Marks, prompt_tokens
from restrain_openrlhf.reference.prompts import Prompt, refuse_lost_mark
from tests.reference.toy import word_tokenizer

TEMPLATE = "<s>{} box it"
BOS = 1


def tokenizer(adds_mark):
    """With Llama's way of beginning a text or without."""
    made = word_tokenizer("a", "sum", "box", "it")
    if adds_mark:
        mark = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
        made.backend_tokenizer.post_processor = mark
    return made


def of(text):
    return Prompt("1", "a sum", text, "line 1")


def test_the_host_and_evaluation_give_the_same_tokens_to_the_same_template():
    llama = tokenizer(adds_mark=True)
    trained = llama(text=TEMPLATE.format("a sum"), add_special_tokens=False)["input_ids"]
    template = choose_template(TEMPLATE, llama)
    marks = Marks(add_special_tokens=not template.chat)
    evaluated = prompt_tokens(of(render(template, "a sum", llama)), llama, marks)
    assert trained == evaluated == [BOS, 2, 3, 4, 5]


def test_evaluation_adds_the_mark_where_the_template_has_none():
    assert prompt_tokens(of("a sum"), tokenizer(adds_mark=True), Marks(add_special_tokens=True)) == [BOS, 2, 3]


@pytest.mark.parametrize(("adds", "text"), list(product([True, False], ["a sum", "<s>a sum"])))
def test_only_prompts_that_would_lose_the_mark_are_refused(adds, text):
    if adds and text == "a sum":
        with pytest.raises(ConfigError, match=r'begins every text with \'<s>\'.*"<s>\{\}"'):
            refuse_lost_mark(text, tokenizer(adds))
    else:
        refuse_lost_mark(text, tokenizer(adds))
