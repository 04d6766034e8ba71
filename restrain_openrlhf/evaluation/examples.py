"""Worked examples put before a problem (few-shot): those of Qwen2.5-Math's evaluation, by benchmark."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data.jsonl import read_rows
from restrain_openrlhf.errors import ConfigError

FOLDER = Path(str(files("restrain_openrlhf.evaluation") / "qwen25_math"))
# As their load_prompt: the competitions have the examples of MATH, and MATH-500 is its part of 500 problems.
SETS: Mapping[str, str] = {
    "math500": "math",
    "amc23": "math",
    "aime24": "math",
    "minerva_math": "minerva_math",
    "mmlu_stem": "mmlu_stem",
}


class Example(BaseModel):
    """A question with its worked answer."""

    model_config = ConfigDict(frozen=True)

    question: str
    answer: str


def examples_for(benchmark: str, shots: int) -> tuple[Example, ...]:
    """The first `shots` examples of a benchmark, in their order. Raises ConfigError where there are not as many."""
    if not shots:
        return ()
    if benchmark not in SETS:
        raise ConfigError(
            f"--shots {shots}: there are no examples for {benchmark}. Those that have some: {', '.join(SETS)}. "
            "Evaluate the others by themselves, with --shots 0."
        )
    found = read_rows(FOLDER / f"{SETS[benchmark]}.jsonl", Example)
    if shots > len(found):
        raise ConfigError(f"--shots {shots}: {benchmark} has {len(found)} examples. Give {len(found)} at most.")
    return tuple(found[:shots])
