"""An evaluation without a model: a fake engine whose responses depend on the prompt alone, as seeded ones do."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.evaluation.grade import ResponseRow
from restrain_openrlhf.evaluation.result import BenchmarkFolder, EvaluationProvenance
from restrain_openrlhf.reference.offline_engine import Rollout
from restrain_openrlhf.reference.prompts import Prompt
from restrain_openrlhf.reference.sampling_pass import WHOLE, SamplingPass, Shard

N = 4


class KilledError(Exception):
    """Stands for the end of the process in the middle of a pass."""


@dataclass
class Engine:
    """Answers every problem `i` with i mod 3 right responses of four; ends after `chunks` chunks if told."""

    chunks: int | None = None
    asked: list[str] = field(default_factory=list)

    def rollouts(self, prompts: Sequence[Prompt]) -> list[list[Rollout]]:
        if self.chunks is not None and not self.chunks:
            raise KilledError
        self.chunks = None if self.chunks is None else self.chunks - 1
        self.asked += [str(prompt.id) for prompt in prompts]
        return [self._group(int(str(prompt.id))) for prompt in prompts]

    def _group(self, number: int) -> list[Rollout]:
        texts = [rf"\boxed{{{number if place < number % 3 else -1}}}" for place in range(N)]
        return [Rollout(text, len(text), truncated=place == N - 1) for place, text in enumerate(texts)]


def provenance(count: int, **changes: object) -> EvaluationProvenance:
    values: dict[str, object] = {
        "benchmark": "toy",
        "title": "Toy",
        "source": "toy.jsonl",
        "problems_digest": "d",
        "problems": count,
        "model": "m",
        "model_fingerprint": "folder:1",
        "template": "plain",
        "template_digest": "t",
        "protocol": "paper",
        "n": N,
        "temperature": 0.6,
        "top_p": 0.95,
        "max_new_tokens": 8,
        "context": 16,
        "seed": 42,
    }
    return EvaluationProvenance.model_validate(values | changes)


@dataclass(frozen=True)
class Toy:
    """A benchmark of `count` problems in a folder of its own."""

    run: Path
    count: int

    @property
    def folder(self) -> BenchmarkFolder:
        return BenchmarkFolder(self.run / "toy")

    def sampling(self, shard: Shard = WHOLE, **changes: object) -> SamplingPass:
        ids = [str(number) for number in range(self.count)]
        self.folder.keep_problems([Problem(id=each, problem=f"q{each}", answer=each) for each in ids])
        prompts = [Prompt(each, f"q{each}", f"q{each}", each) for each in ids]
        made = provenance(self.count, **changes)
        return SamplingPass(shard.of(prompts), made, self.folder.responses(shard), ResponseRow, ResponseRow.of)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path / "run", 150)
