"""Prepares an evaluation: model, template and benchmarks, all checked before an engine is started."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from restrain_openrlhf.data.benchmarks import LoadedBenchmark
from restrain_openrlhf.data.identity import model_fingerprint, set_digest
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.evaluation.grade import ResponseRow
from restrain_openrlhf.evaluation.protocol import Request, Template, choose_template, end_tokens, render, worded
from restrain_openrlhf.evaluation.result import BenchmarkFolder, EvaluationProvenance
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.reference.offline_engine import Marks, RolloutEngine, Sampling, prompt_tokens
from restrain_openrlhf.reference.prompts import Prompt
from restrain_openrlhf.reference.sampling_pass import WHOLE, SamplingPass, Shard, prompts_per_chunk


@dataclass(frozen=True)
class EvaluationJob:
    """A sampling pass per benchmark, ready to run with one engine for all."""

    passes: tuple[SamplingPass, ...]
    engine: Callable[[], RolloutEngine]

    def run(self, on_progress: Callable[[int], None]) -> None:
        """Draw missing responses. The engine is started once, and only if responses are missing."""
        engine = cache(self.engine)
        for each in self.passes:
            each.run(engine, on_progress)


def prepare(request: Request, benchmarks: Sequence[LoadedBenchmark], shard: Shard = WHOLE) -> EvaluationJob:
    """Check everything but the engine, and write each benchmark's problems.

    Raises ConfigError for a model or template that does not exist, DataError listing the prompts that are too long.
    """
    fingerprint = model_fingerprint(request.model)
    for entry in benchmarks:
        entry.kind.check(entry.kind.graded_row(each.text, each.row) for each in entry.problems)
    from transformers import AutoTokenizer  # noqa: PLC0415 - costs seconds; bad input is told before

    tokenizer = AutoTokenizer.from_pretrained(request.model, trust_remote_code=True)
    context = _context(request)
    template = choose_template(request.template, tokenizer)
    prompts = {entry.name: benchmark_prompts(entry, template, tokenizer) for entry in benchmarks}
    marks = Marks(template.adds_special_tokens, template.stops, end_tokens(tokenizer))
    sampling = Sampling(**request.chosen_protocol().drawing, tensor_parallel_size=request.tensor_parallel_size)
    longest = max(_longest(name, group, tokenizer, marks, sampling, context) for name, group in prompts.items())
    sampling = sampling.model_copy(update={"max_len": longest + sampling.max_new_tokens})
    chunk, passes = prompts_per_chunk(sampling.n, detect().has_gpus), []
    for entry in benchmarks:
        provenance = _provenance(request, entry, template, tokenizer, fingerprint, context)
        folder = BenchmarkFolder(request.out / entry.name)
        folder.keep_problems(entry.problems)
        responses = folder.responses(shard)
        own = shard.of(prompts[entry.name])
        passes.append(SamplingPass(own, provenance, responses, ResponseRow, ResponseRow.of, chunk))
    return EvaluationJob(tuple(passes), lambda: RolloutEngine(request.model, sampling, tokenizer, marks))


def _context(request: Request) -> int:
    """The most tokens of a prompt with its response. Raises ConfigError if --context exceeds the model's."""
    from transformers import AutoConfig  # noqa: PLC0415 - see prepare

    config = AutoConfig.from_pretrained(request.model, trust_remote_code=True)
    most = int(config.get_text_config().max_position_embeddings)
    context = request.context or most
    if context > most:
        raise ConfigError(f"--context {context}: the model {request.model} allows at most {most} tokens. Lower it.")
    return context


def benchmark_prompts(benchmark: LoadedBenchmark, template: Template, tokenizer: Any) -> list[Prompt]:
    """The prompt of each problem, which asks for the answer in the form that its kind is read in."""
    kind = benchmark.kind
    asked = (worded(template, kind.instruction_for(kind.row(each.text, each.row))) for each in benchmark.problems)
    return [
        Prompt(each.id, each.text, render(own, each.problem, tokenizer), f"problem {each.id}")
        for each, own in zip(benchmark.problems, asked, strict=True)
    ]


def _longest(
    name: str, prompts: Sequence[Prompt], tokenizer: Any, marks: Marks, sampling: Sampling, context: int
) -> int:
    """The tokens of the longest prompt. Raises DataError for prompts that leave no room for a response."""
    lengths = {prompt.id: len(prompt_tokens(prompt, tokenizer, marks)) for prompt in prompts}
    room = context - sampling.max_new_tokens
    long = [f"{prompt_id} ({length})" for prompt_id, length in lengths.items() if length > room]
    if long:
        raise DataError(
            f"{name}: {len(long)} of {len(prompts)} prompts are too long: a context of {context} tokens with "
            f"{sampling.max_new_tokens} new tokens leaves {max(room, 0)} for the prompt. Ids (tokens): "
            f"{', '.join(long)}. Lower --max-new-tokens, or raise --context if the model allows it."
        )
    return max(lengths.values())


def _provenance(
    request: Request, entry: LoadedBenchmark, template: Template, tokenizer: Any, fingerprint: str, context: int
) -> EvaluationProvenance:
    around = str(getattr(tokenizer, "chat_template", None)) if template.chat else ""
    text = worded(template, entry.kind.instruction_for({})).text + around
    return EvaluationProvenance(
        benchmark=entry.name,
        title=entry.title,
        source=entry.source,
        problems_digest=set_digest(f"{problem.id}\0{problem.text}" for problem in entry.problems),
        problems=len(entry.problems),
        answers=entry.kind.model_dump(mode="json"),
        model=request.model,
        model_fingerprint=fingerprint,
        template=template.name,
        template_digest=hashlib.sha256(text.encode()).hexdigest()[:16],
        protocol=request.protocol,
        **request.chosen_protocol().drawing,
        context=context,
    )
