"""No kind reads a thought: the forms of three families' templates, as they are and as a tokenizer decodes them."""

from typing import ClassVar, Literal

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from restrain_openrlhf.answers import AnswerKind, extract, parse_kind
from restrain_openrlhf.answers.extract import said

# What a kind reads where a thought says one thing and the answer another, and its answers.
KINDS = {
    "math": (r"\boxed{5}", "The answer is 4.", "4"),
    "choice": ("The answer is A.", "The answer is B.", "B"),
    "text": ("<answer>Rome</answer>", "Paris", "Paris"),
    "number": (r"\boxed{5}", "The answer is 4.", "4"),
    "json": ('{"a": 5}', '{"a": 4}', '{"a": 4}'),
    "sql": ("```sql\nSELECT 5\n```", "```sql\nSELECT 4\n```", "SELECT 4"),
    "code": ("```python\ndef f(x):\n    return 5\n```", "```python\ndef f(x):\n    return 4\n```", None),
    "judge": ("<answer>Rome</answer>", "Paris", "Paris"),
    "mixed": (r"\boxed{5}", "The answer is 4.", "4"),
}
SETTINGS = {"judge": {"callable": "builtins:len"}}
ROWS = {"code": {"problem": "def f(x: int) -> int:\n", "examples": ["f(1)"]}, "sql": {"problem": "p", "schema": ""}}
# The templates of Qwen3, of DeepSeek-R1's distillations (the prompt ends with <think>), of gpt-oss, and of Magistral.
QWEN = "<think>\n{0}\n</think>\n\n{1}<|im_end|>"
R1 = "{0}\n</think>\n\n{1}<｜end▁of▁sentence｜>"
GPT_OSS = "<|channel|>analysis<|message|>{0}<|end|><|start|>assistant<|channel|>final<|message|>{1}<|return|>"
FORMS = (QWEN, R1, GPT_OSS, "[THINK]{0}[/THINK]{1}", "analysisWe see: {0}\n.assistantfinal{1}",
         "<think>\n\n</think>\n\n{1}", "<think>{0}</think>{0}<think>{0}</think>\n{1}")  # fmt: skip
UNENDED = ("<think>\n{0}", "{1}<think>{0}", "<think>a</think>{1}<think>\n{0}", "[THINK]{0}",
    "<think>\nI write `</think>`. {0}",
           "<|channel|>analysis<|message|>{0}", "analysisWe see that {0}",
           "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{0}<|call|>")  # fmt: skip


class Everything(AnswerKind):
    """A user's own kind: all that it is given is the answer."""

    version: ClassVar[str] = "1"
    reads: ClassVar[str] = "All of it."

    name: Literal["everything"] = "everything"

    def extract(self, response, row):
        return response

    def key(self, answer, row):
        return answer


@pytest.mark.parametrize("name", KINDS)
def test_no_kind_reads_a_thought(name):
    thought, answer, expected = KINDS[name]
    kind, row = parse_kind({"name": name, **SETTINGS.get(name, {})}), ROWS.get(name, {})
    alone = kind.extract(answer, row)
    assert alone is not None
    assert alone == (expected or alone)
    for form in FORMS:
        assert kind.extract(form.format(thought, answer), row) == alone, form
    for form in UNENDED:
        assert kind.extract(form.format(thought, answer), row) is None, form
    assert kind.extract(f"<think>{thought}</think>\n", row) is None


def test_a_kind_of_a_users_own_gets_no_thought():
    assert Everything().extract("<think>a</think>b<|im_end|>\n", {}) == "b"
    assert Everything().extract("<think>a", {}) is None
    assert Everything().extract("</s>", {}) == ""


@pytest.mark.parametrize(
    "text",
    ['```python\nre.sub("<think>.*</think>", "", text)\n```\nDone.', "```xml\n<think>\n</think>\n```\nThe answer is 4.",
     "It ends with `</think>`. The answer is 4.", "text.split('</think>')",
     "re.sub(r'<think>', '', s)", '{"a": "</think>"}',
     "analysis of it, and analysis_result = 4", "I think it is 4. <thinker> Our thoughts>", "assistant final: 4"],
)  # fmt: skip
def test_a_mark_that_is_only_spoken_of_stays(text):
    assert said(text) == text
    assert said(f"<think>\nLet's see: 5\" long\n```python\nx = 1\n</think>\n{text}<|im_end|>").strip() == text


@pytest.mark.parametrize("keeps_marks", [True, False])
@pytest.mark.parametrize("form", [QWEN, R1, GPT_OSS])
def test_what_a_tokenizer_decodes(form, keeps_marks):
    """As in the models' own tokenizers, the marks of thoughts are no special tokens, and those of channels are."""
    tokenizer = Tokenizer(
        models.BPE({sign: place for place, sign in enumerate(pre_tokenizers.ByteLevel.alphabet())}, [])
    )
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(each, special=False) for each in ("<think>", "</think>")])
    ends = ("<|im_end|>", "<｜end▁of▁sentence｜>", "<|return|>")
    tokenizer.add_special_tokens(["<|channel|>", "<|message|>", "<|start|>", "<|end|>", *ends])
    tokens = tokenizer.encode(form.format(r"We get \boxed{5}.", "The answer is 4.")).ids
    decoded = tokenizer.decode(tokens, skip_special_tokens=not keeps_marks)
    assert ("<|" in decoded or "｜>" in decoded) is keeps_marks
    assert said(decoded).strip() == "The answer is 4."
    assert extract(decoded) == "4"
