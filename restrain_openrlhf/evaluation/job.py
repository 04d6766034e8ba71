"""Puts an evaluation together: model, template and benchmarks, checked before any engine is started."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from restrain_openrlhf.data.identity import model_fingerprint, set_digest
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.evaluation.examples import Example, examples_for
from restrain_openrlhf.evaluation.loading import LoadedBenchmark
from restrain_openrlhf.evaluation.protocol import SamplingProtocol, Template, choose_template, end_tokens, render
from restrain_openrlhf.evaluation.responses import BenchmarkFolder, EvaluationProvenance, ResponseRow
from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.hook.offline_engine import RolloutEngine, Sampling, prompt_tokens
from restrain_openrlhf.hook.prompts import Prompt
from restrain_openrlhf.sampling_pass import WHOLE, SamplingPass, Shard, prompts_per_chunk


@dataclass(frozen=True)
class Request:
    """What a user asked for. `context` in tokens (None: the model's own); `labels` name the run in figures.

    `shots`: worked examples before every problem (None: the protocol's).
    """

    model: str
    out: Path
    protocol: SamplingProtocol
    template: str = "auto"
    shard: Shard = WHOLE
    context: int | None = None
    tensor_parallel_size: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    shots: int | None = None

    def examples(self, benchmark: str) -> tuple[Example, ...]:
        """Those of a benchmark. Raises ConfigError where there are not as many as asked for."""
        shots = self.protocol.shots.get(benchmark, 0) if self.shots is None else self.shots
        return examples_for(benchmark, shots)


def eval_command(request: Request, benchmarks: Mapping[str, Path]) -> list[str]:
    """The words of `restrain eval` that make this request of these files, for a process of its own.

    That process takes all visible GPUs (run/all_gpus.py).
    """
    protocol = request.protocol
    options = {
        "--model": request.model,
        "--benchmarks": ",".join(f"{name}={path}" for name, path in benchmarks.items()),
        "--out": request.out,
        "--protocol": protocol.name,
        "--n": protocol.n,
        "--max-new-tokens": protocol.max_new_tokens,
        "--seed": protocol.seed,
        "--template": request.template,
        "--tensor-parallel-size": request.tensor_parallel_size,
    }
    words = ["eval", *(str(word) for option in options.items() for word in option)]
    words += ["--context", str(request.context)] if request.context else []
    words += ["--shots", str(request.shots)] if request.shots is not None else []
    return [*words, *(word for key, value in request.labels.items() for word in ("--label", f"{key}={value}"))]


@dataclass(frozen=True)
class EvaluationJob:
    """One sampling pass per benchmark, ready to run with one engine."""

    request: Request
    passes: tuple[SamplingPass, ...]
    template: Template
    sampling: Sampling
    tokenizer: Any

    def run(self, on_progress: Callable[[int], None]) -> None:
        """Draw what is missing. The engine is started once, and only if something is."""
        engine = cache(lambda: RolloutEngine(self.request.model, self.sampling, self.tokenizer))
        for each in self.passes:
            each.run(engine, on_progress)


def prepare(request: Request, benchmarks: Sequence[LoadedBenchmark]) -> EvaluationJob:
    """Check everything but the engine, and write each benchmark's problems.

    Raises ConfigError for a model or template that does not exist, DataError listing the prompts that are too long.
    """
    fingerprint = model_fingerprint(request.model)
    from transformers import AutoConfig, AutoTokenizer  # noqa: PLC0415 - costs seconds; bad input is told before

    tokenizer = AutoTokenizer.from_pretrained(request.model, trust_remote_code=True)
    config = AutoConfig.from_pretrained(request.model, trust_remote_code=True)
    context = _context(request, int(config.get_text_config().max_position_embeddings))
    template = choose_template(request.template, tokenizer)
    special = adds_special_tokens(template)
    prompts = {
        entry.name: benchmark_prompts(entry, template, tokenizer, request.examples(entry.name)) for entry in benchmarks
    }
    sampling = _sampling(request, template, tokenizer, special)
    longest = max(_longest(name, group, tokenizer, sampling, context) for name, group in prompts.items())
    sampling = replace(sampling, max_len=longest + sampling.max_new_tokens)
    passes = [
        _pass(
            request, entry, prompts[entry.name], _provenance(request, entry, template, tokenizer, fingerprint, context)
        )
        for entry in benchmarks
    ]
    return EvaluationJob(request, tuple(passes), template, sampling, tokenizer)


def _context(request: Request, most: int) -> int:
    if request.context and request.context > most:
        raise ConfigError(f"--context {request.context}: {request.model} was made for {most} tokens at most. Lower it.")
    return request.context or most


def adds_special_tokens(template: Template) -> bool:
    """As vLLM does with a text prompt: the beginning mark a tokenizer adds, unless the chat template has written it.

    A template that begins with the mark gets no second one (hook/offline_engine.py).
    """
    return not template.chat


def benchmark_prompts(
    benchmark: LoadedBenchmark, template: Template, tokenizer: Any, examples: Sequence[Example] = ()
) -> list[Prompt]:
    """The text that the model gets for each problem. Raises ConfigError where the template has no form for examples."""
    return [
        Prompt(
            problem.id, problem.problem, render(template, problem.problem, tokenizer, examples), f"problem {problem.id}"
        )
        for problem in benchmark.problems
    ]


def _longest(name: str, prompts: Sequence[Prompt], tokenizer: Any, sampling: Sampling, context: int) -> int:
    """Tokens of the longest prompt. Nothing is cut: prompts without room for a response are an error."""
    lengths = {prompt.id: len(prompt_tokens(prompt, tokenizer, sampling)) for prompt in prompts}
    room = context - sampling.max_new_tokens
    long = [f"{prompt_id} ({length})" for prompt_id, length in lengths.items() if length > room]
    if long:
        raise DataError(
            f"{name}: {len(long)} of {len(prompts)} prompts are longer than the {max(room, 0)} tokens that a context "
            f"of {context} leaves beside {sampling.max_new_tokens} new ones. Ids (tokens): {', '.join(long)}. "
            "Lower --max-new-tokens, or raise --context where the model allows it."
        )
    return max(lengths.values())


def _sampling(request: Request, template: Template, tokenizer: Any, special: bool) -> Sampling:
    protocol = request.protocol
    return Sampling(
        n=protocol.n,
        temperature=protocol.temperature,
        top_p=protocol.top_p,
        max_new_tokens=protocol.max_new_tokens,
        seed=protocol.seed,
        tensor_parallel_size=request.tensor_parallel_size,
        stops=template.stops,
        stop_tokens=end_tokens(tokenizer),
        add_special_tokens=special,
    )


def _provenance(
    request: Request, entry: LoadedBenchmark, template: Template, tokenizer: Any, fingerprint: str, context: int
) -> EvaluationProvenance:
    examples = request.examples(entry.name)
    text = template.text + str(getattr(tokenizer, "chat_template", None) if template.chat else "")
    text += "".join(f"\0{example.question}\0{example.answer}" for example in examples)
    pairs = [f"{problem.id}\0{problem.problem}" for problem in entry.problems]
    protocol = request.protocol
    return EvaluationProvenance(
        benchmark=entry.name,
        title=entry.title,
        source=entry.source,
        problems_digest=set_digest(pairs),
        problems=len(entry.problems),
        model=request.model,
        model_fingerprint=fingerprint,
        template=template.name,
        template_digest=hashlib.sha256(text.encode()).hexdigest()[:16],
        shots=len(examples),
        protocol=protocol.name,
        n=protocol.n,
        temperature=protocol.temperature,
        top_p=protocol.top_p,
        max_new_tokens=protocol.max_new_tokens,
        context=context,
        seed=protocol.seed,
        labels=dict(request.labels),
    )


def _pass(
    request: Request, entry: LoadedBenchmark, prompts: Sequence[Prompt], provenance: EvaluationProvenance
) -> SamplingPass:
    folder = BenchmarkFolder(request.out / entry.name)
    folder.keep_problems(entry.problems)
    chunk = prompts_per_chunk(request.protocol.n, detect().has_gpus)
    return SamplingPass(request.shard.of(prompts), provenance, folder.responses(request.shard), ResponseRow, chunk)
