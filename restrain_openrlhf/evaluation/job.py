"""How an evaluation asks a model: options, protocols, Qwen2.5-Math's templates, and the checked passes that result."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from restrain_openrlhf.config.command_line import ANSWERS, KindOption
from restrain_openrlhf.data.benchmarks import LoadedBenchmark
from restrain_openrlhf.data.identity import model_fingerprint, set_digest
from restrain_openrlhf.data.prompt_reader import TextOrChat, reworded
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.evaluation.grade import ResponseRow
from restrain_openrlhf.evaluation.result import BenchmarkFolder, EvaluationProvenance
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.reference.offline_engine import Marks, RolloutEngine, Sampling, prompt_tokens
from restrain_openrlhf.reference.prompts import Prompt, in_chat_template
from restrain_openrlhf.reference.sampling_pass import WHOLE, SamplingPass, Shard, prompts_per_chunk

# Generation ends at each of these that is a token of the model (the stop words of math_eval.py).
END_MARKS = ("</s>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>")


@dataclass(frozen=True)
class SamplingProtocol:
    """n responses per problem of at most `max_new_tokens` tokens, with vLLM's sampling parameters."""

    name: str
    n: int
    temperature: float
    top_p: float
    max_new_tokens: int = 4096
    seed: int = 42

    @property
    def drawing(self) -> dict[str, Any]:
        """The parameters that determine a response, besides model and prompt."""
        return {name: getattr(self, name) for name in ("n", "temperature", "top_p", "max_new_tokens", "seed")}


PAPER = SamplingProtocol("paper", n=16, temperature=0.6, top_p=0.95)
GREEDY = SamplingProtocol("greedy", n=1, temperature=0.0, top_p=1.0)
PROTOCOLS: Mapping[str, SamplingProtocol] = {entry.name: entry for entry in (PAPER, GREEDY)}


class Request(BaseModel, frozen=True):
    """The options of `restrain eval`. None means that the protocol or the model decides."""

    model: str = Field(description="Model: a hub id or a local folder.")
    benchmarks: str = Field(
        description=(
            "Comma-separated: names, NAME=PATH or paths, such as aime24,mine=m.jsonl. table1 and table3 stand for "
            "those of the paper's tables."
        )
    )
    out: Path = Field(description="Output folder for responses, grades and results.")
    protocol: str = Field("paper", description="paper (T 0.6, top-p 0.95, 16 responses), or greedy.")
    n: int | None = Field(None, ge=1, description="Responses per problem; default: the protocol's.")
    shard: str = Field("0/1", description="I/K: run only shard I of K, counted from 0.")
    template: str = Field(
        "auto", description="Prompt template: a name, or a text with {} (docs/journeys/evaluation.md)."
    )
    benchmark_dir: Path | None = Field(None, description="Folder with local copies, NAME.jsonl, instead of the hub.")
    max_new_tokens: int | None = Field(None, ge=1, description="Longest response, in tokens; default: the protocol's.")
    context: int | None = Field(
        None, ge=2, description="Longest prompt with response, in tokens; default: the model's."
    )
    seed: int = Field(42, ge=0, lt=2**32, description="The same seed gives the same responses.")
    tensor_parallel_size: int = Field(1, ge=1, description="GPUs per vLLM engine.")
    answers: KindOption | None = Field(
        None, description=f"{ANSWERS} Default: the benchmark's own; a file's are mathematical."
    )
    column: str | None = Field(
        None, description="Column of the prompts in files of your own. Default: the only one with a known name."
    )

    def chosen_protocol(self) -> SamplingProtocol:
        """The protocol with the user's n, length and seed.

        Raises ConfigError for an unknown name, or n > 1 when greedy.
        """
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"--protocol {self.protocol!r}: is not a protocol. Known: {', '.join(PROTOCOLS)}.")
        known = PROTOCOLS[self.protocol]
        if not known.temperature and (self.n or 1) != 1:
            raise ConfigError(
                f"--n {self.n} with --protocol {self.protocol}: greedy responses are all equal. Leave --n out."
            )
        length = self.max_new_tokens or known.max_new_tokens
        return replace(known, n=self.n or known.n, max_new_tokens=length, seed=self.seed)


@dataclass(frozen=True)
class Template:
    """A prompt template. `text` has {input} for the problem, and may have {instruction} for that of the kind of answer.

    If `chat`, the tokenizer's chat template is put around it. `stops` are texts that end a response. If `verbatim`, the
    prompt is that of training, letter by letter; from others spaces at both ends are dropped, as in Qwen2.5-Math's
    `construct_prompt`.
    """

    name: str
    text: str
    chat: bool = False
    stops: tuple[str, ...] = ()
    verbatim: bool = False

    @property
    def adds_special_tokens(self) -> bool:
        """Whether the tokenizer adds its beginning mark, as vLLM lets it for texts; a chat template writes the mark.

        A template that begins with the mark gets no second one (reference/offline_engine.py).
        """
        return not self.chat


TEMPLATES: Mapping[str, Template] = {
    entry.name: entry
    for entry in (
        Template(
            "qwen25-math-cot",
            "<|im_start|>system\n{instruction}<|im_end|>\n<|im_start|>user\n{input}<|im_end|>\n<|im_start|>assistant\n",
        ),
        Template(
            "qwen-boxed",
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
            "<|im_start|>user\n{input}\n{instruction}<|im_end|>\n<|im_start|>assistant\n",
        ),
        Template("cot", "Question: {input}\nAnswer: ", stops=("\n\nQuestion:",)),
        Template("direct", "Question: {input}\nAnswer: "),
        Template("chat-boxed", "{input}\n{instruction}", chat=True),
        Template("chat", "{input}", chat=True, verbatim=True),
        # Qwen2.5-Math calls it `mathstral`.
        Template("boxed", "{input}\n{instruction}"),
        Template("plain", "{input}", verbatim=True),
    )
}
AUTO = "auto"


def choose_template(name: str, tokenizer: Any) -> Template:
    """The template of that name; `auto` is qwen25-math-cot for a model that knows <|im_start|>, else chat-boxed
    for one with a chat template, else cot. A text with {} is a template itself, as data.input_template has it.

    Raises ConfigError for an unknown name, and for a chat template the tokenizer does not have.
    """
    if name == AUTO:
        if "<|im_start|>" in tokenizer.get_vocab():
            return TEMPLATES["qwen25-math-cot"]
        return TEMPLATES["chat-boxed" if tokenizer.chat_template else "cot"]
    if "{}" in name.replace("{{}}", ""):
        try:
            return Template("given", name.format("{input}"), verbatim=True)
        except (IndexError, KeyError, ValueError):
            raise ConfigError(
                f"--template {name!r}: contains braces other than {{}}. Double them: {{{{ and }}}}."
            ) from None
    if name not in TEMPLATES:
        raise ConfigError(f"--template {name!r}: is not a template. Known: {AUTO}, {', '.join(TEMPLATES)}.")
    template = TEMPLATES[name]
    if template.chat and not tokenizer.chat_template:
        raise ConfigError(f"--template {name}: the model's tokenizer has no chat template. Choose boxed or cot.")
    return template


def worded(template: Template, instruction: str) -> Template:
    """The template with the instruction of the kind of answer; mathematics asks for a box."""
    return replace(template, text=template.text.replace("{instruction}", instruction))


def render(template: Template, problem: TextOrChat, tokenizer: Any) -> str:
    """The text of the prompt. Raises ConfigError for a problem that is a chat in a template that is none."""

    def wording(text: str) -> str:
        filled = template.text.replace("{input}", text)
        if template.verbatim:
            return filled
        return filled.strip() if template.chat else filled.strip(" ")

    asked = reworded(problem, wording)
    if template.chat:
        return in_chat_template(asked, tokenizer)
    if isinstance(asked, list):
        raise ConfigError(
            f"--template {template.name}: a problem is a chat of {len(asked)} messages, which only the model's chat "
            "template can write. Choose chat or chat-boxed."
        )
    return asked


def end_tokens(tokenizer: Any) -> tuple[int, ...]:
    """The end marks that are tokens of this model. Base models also end with others than their own end of text."""
    vocabulary = tokenizer.get_vocab()
    return tuple(vocabulary[mark] for mark in END_MARKS if mark in vocabulary)


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
