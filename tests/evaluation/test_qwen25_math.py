"""Prompts byte for byte as Qwen2.5-Math's own code makes them; golden/make_qwen25_math.py wrote the golden file."""

import json
from pathlib import Path

import pytest

from restrain_openrlhf.data.benchmarks import load_benchmark
from restrain_openrlhf.evaluation.job import TEMPLATES, benchmark_prompts

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
