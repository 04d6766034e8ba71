"""Prompts byte for byte as Qwen2.5-Math's own code makes them; golden/make_qwen25_math.py wrote the golden file."""

import json
from pathlib import Path

import pytest

from restrain_openrlhf.data.benchmarks import BENCHMARKS, load_benchmark
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.job import benchmark_prompts
from restrain_openrlhf.evaluation.protocol import (
    EXAMPLES,
    EXAMPLES_OF,
    PROTOCOLS,
    TEMPLATES,
    Request,
    render,
)

GOLDEN = json.loads((Path(__file__).parent / "golden" / "qwen25_math.json").read_text(encoding="utf-8"))


def asking(**changes):
    return Request(model="m", benchmarks="", out=Path("out"), **changes)


KEYS = sorted({(each["benchmark"], each["template"], each["shots"]) for each in GOLDEN["prompts"]})


@pytest.mark.parametrize(("benchmark", "template", "shots"), KEYS)
def test_prompts_are_those_of_their_code(write_jsonl, benchmark, template, shots):
    loaded = load_benchmark(benchmark, write_jsonl(f"{benchmark}.jsonl", GOLDEN["rows"][benchmark]).parent)
    ours = benchmark_prompts(loaded, TEMPLATES[template], None, asking(shots=shots).examples(benchmark))
    theirs = [
        each
        for each in GOLDEN["prompts"]
        if (each["benchmark"], each["template"], each["shots"]) == (benchmark, template, shots)
    ]
    assert theirs
    assert [ours[each["place"]].text for each in theirs] == [each["text"] for each in theirs]


def test_the_golden_file_has_every_set_with_examples_and_every_template_that_takes_some():
    assert {name for name, _, shots in KEYS if shots} == set(EXAMPLES_OF)
    # `chat-boxed` is `boxed` inside the tokenizer's own chat template.
    able = {name for name, template in TEMPLATES.items() if template.splitter is not None and not template.chat}
    assert {template for _, template, _ in KEYS} == able
    assert set(EXAMPLES_OF) <= set(BENCHMARKS)


def test_the_protocol_is_that_of_their_script():
    request = asking(protocol="qwen25-math")
    protocol = request.chosen_protocol()
    assert (protocol.n, protocol.temperature, protocol.top_p, protocol.max_new_tokens) == (1, 0.0, 1.0, 2048)
    assert {name: len(request.examples(name)) for name in BENCHMARKS} == dict.fromkeys(BENCHMARKS, 0) | {"mmlu_stem": 5}
    assert len(request.model_copy(update={"shots": 4}).examples("math500")) == 4
    assert not request.model_copy(update={"shots": 0}).examples("mmlu_stem")
    assert asking(protocol="qwen25-math", max_new_tokens=100).chosen_protocol().max_new_tokens == 100
    assert PROTOCOLS["paper"].max_new_tokens == 4096


@pytest.mark.parametrize(
    ("benchmark", "shots", "message"),
    [("gpqa_diamond", 4, "no examples for gpqa_diamond"), ("minerva_math", 5, "minerva_math has 4 examples")],
)
def test_examples_that_there_are_not_are_refused(benchmark, shots, message):
    with pytest.raises(ConfigError, match=message):
        asking(shots=shots).examples(benchmark)


def test_a_template_without_a_form_for_examples_is_refused():
    with pytest.raises(ConfigError, match=r"--template plain: has no form for examples. Choose one of qwen25-math-cot"):
        render(TEMPLATES["plain"], "1+1=", None, asking(shots=1).examples("amc23"))


def test_the_examples_travel_with_their_licence():
    assert "MIT License" in (EXAMPLES / "LICENSE").read_text()
