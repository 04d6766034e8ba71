"""How an evaluation asks a model: options, protocols, Qwen2.5-Math's templates, and the checked passes that result."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PlainSerializer, model_validator

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.answers.asked import compare_forms
from restrain_openrlhf.config.command_line import ANSWERS, KindOption
from restrain_openrlhf.data.benchmarks import LoadedBenchmark, benchmark_words, is_own_file, load_benchmark
from restrain_openrlhf.data.identity import model_fingerprint, set_digest
from restrain_openrlhf.data.outputs import output_folder
from restrain_openrlhf.data.prompt_reader import TextOrChat, reworded
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.evaluation.grade import ResponseRow
from restrain_openrlhf.evaluation.result import BenchmarkFolder, EvaluationProvenance
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.records.folder import RunFolder, model_of
from restrain_openrlhf.reference.offline_engine import Marks, RolloutEngine, Sampling, prompt_tokens
from restrain_openrlhf.reference.prompts import Prompt, in_chat_template
from restrain_openrlhf.reference.sampling_pass import WHOLE, OnRows, SamplingPass, Shard, ShardedPass, prompts_per_chunk

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
    def parameters(self) -> dict[str, Any]:
        """The parameters that determine a response, besides model and prompt."""
        return {name: getattr(self, name) for name in ("n", "temperature", "top_p", "max_new_tokens", "seed")}


PAPER = SamplingProtocol("paper", n=16, temperature=0.6, top_p=0.95)
GREEDY = SamplingProtocol("greedy", n=1, temperature=0.0, top_p=1.0)
PROTOCOLS: Mapping[str, SamplingProtocol] = {entry.name: entry for entry in (PAPER, GREEDY)}


def of_word(read: Callable[[str], object]) -> BeforeValidator:
    """Reads a field that is typed as a word; code gives what the word stands for."""
    return BeforeValidator(lambda given: read(given) if isinstance(given, str) else given)


class Request(BaseModel, frozen=True, use_attribute_docstrings=True):
    """The options of `restrain eval`. None means that the protocol or the model decides.

    Raises ConfigError for benchmarks that cannot be told apart, and for n > 1 when greedy.
    """

    model: Annotated[str, AfterValidator(model_of)]
    """Model: a hub id, a local folder, or the folder of a finished run, whose model it then is."""
    benchmarks: Annotated[tuple[str, ...], of_word(benchmark_words), PlainSerializer(",".join)] = Field(
        description="Comma-separated: names, NAME=PATH or paths, such as aime24,mine=m.jsonl."
    )
    out: Annotated[Path, AfterValidator(output_folder)]
    """Output folder for responses, grades and results."""
    protocol: Literal["paper", "greedy"] = "paper"
    """paper (T 0.6, top-p 0.95, 16 responses), or greedy."""
    n: int | None = Field(None, ge=1)
    """Responses per problem; default: the protocol's."""
    shard: Annotated[Shard, of_word(Shard.named), PlainSerializer(str)] = WHOLE
    """I/K: run only shard I of K, counted from 0."""
    template: str = "auto"
    """Prompt template: a name, or a text with {} (docs/journeys/evaluation.md)."""
    benchmark_dir: Path | None = None
    """Folder with local copies, NAME.jsonl, instead of the hub."""
    max_new_tokens: int | None = Field(None, ge=1)
    """Longest response, in tokens; default: the protocol's."""
    context: int | None = Field(None, ge=2)
    """Longest prompt with response, in tokens; default: the model's."""
    seed: int = Field(42, ge=0, lt=2**32)
    """The same seed gives the same responses."""
    tensor_parallel_size: int = Field(1, ge=1)
    """GPUs per vLLM engine."""
    answers: KindOption | None = Field(
        None, description=f"{ANSWERS} Default: the benchmark's own; for a file, that of the run that trained MODEL."
    )
    column: str | None = None
    """Column of the prompts in files of your own. Default: the only one with a known name."""

    @model_validator(mode="after")
    def _one_greedy_response(self) -> Self:
        if not PROTOCOLS[self.protocol].temperature and (self.n or 1) != 1:
            raise ConfigError(
                f"--n {self.n} with --protocol {self.protocol}: greedy responses are all equal. Leave --n out."
            )
        return self

    @property
    def drawing(self) -> SamplingProtocol:
        """The protocol with the user's n, length and seed."""
        known = PROTOCOLS[self.protocol]
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


def benchmark_prompts(benchmark: LoadedBenchmark, template: Template, tokenizer: Any) -> list[Prompt]:
    """The prompt of each problem, which asks for the answer in the form that its kind is read in.

    Raises ConfigError if a template of the user's, or the problems, ask for a form that the kind does not read.
    """
    kind, problems = benchmark.kind, benchmark.problems
    rows = [kind.row(each.text, each.row) for each in problems]
    asked = [worded(template, kind.instruction_for(row)) for row in rows]
    texts = [render(own, each.problem, tokenizer) for own, each in zip(asked, problems, strict=True)]
    compare_forms(kind, zip(texts, rows, strict=True))
    each_text = zip(problems, texts, strict=True)
    return [Prompt(each.id, each.text, text, f"problem {each.id}") for each, text in each_text]


@dataclass(frozen=True)
class Evaluation:
    """What a request asks for, as far as it is known before an engine starts; each part is made once, when needed."""

    request: Request

    @cached_property
    def benchmarks(self) -> tuple[LoadedBenchmark, ...]:
        """The benchmarks. Raises DataError for one that cannot be loaded, ConfigError for a file of an unknown kind."""
        asked = self.request
        return tuple(
            load_benchmark(word, asked.benchmark_dir, self._kind(word), asked.column) for word in asked.benchmarks
        )

    def _kind(self, word: str) -> AnswerKind | None:
        """The kind that was asked for; else of a file that of the run that trained the model, of a benchmark None."""
        model, asked = Path(self.request.model), self.request.answers
        if asked is not None or not is_own_file(word):
            return asked
        if model.exists() and (run := RunFolder.holding(str(model))):
            return run.kind
        raise ConfigError(
            f"--benchmarks {word}: is a file of your own, and the model {model} is in the folder of no run that would "
            "tell its kind of answer. Give the kind, such as --answers math or --answers text (docs/concepts/kinds.md)."
        )

    @cached_property
    def tokenizer(self) -> Any:
        from transformers import AutoTokenizer  # noqa: PLC0415 - costs seconds; bad input is told before

        return AutoTokenizer.from_pretrained(self.request.model, trust_remote_code=True)

    @cached_property
    def template(self) -> Template:
        return choose_template(self.request.template, self.tokenizer)

    @cached_property
    def prompts(self) -> Mapping[str, list[Prompt]]:
        return {each.name: benchmark_prompts(each, self.template, self.tokenizer) for each in self.benchmarks}

    @cached_property
    def marks(self) -> Marks:
        """The tokenizer adds its beginning mark, as vLLM lets it for texts, unless a chat template writes the mark."""
        return Marks(not self.template.chat, self.template.stops, end_tokens(self.tokenizer))

    @cached_property
    def context(self) -> int:
        """The most tokens of a prompt with its response. Raises ConfigError if --context exceeds the model's."""
        from transformers import AutoConfig  # noqa: PLC0415 - see tokenizer

        model, context = self.request.model, self.request.context
        most = int(AutoConfig.from_pretrained(model, trust_remote_code=True).get_text_config().max_position_embeddings)
        if context and context > most:
            raise ConfigError(f"--context {context}: the model {model} allows at most {most} tokens. Lower it.")
        return context or most

    @cached_property
    def sampling(self) -> Sampling:
        """How one engine draws for all benchmarks. Raises DataError for prompts that leave no room for a response."""
        drawing = self.request.drawing
        longest = max(self._longest(name, drawing.max_new_tokens) for name in self.prompts)
        max_len, size = longest + drawing.max_new_tokens, self.request.tensor_parallel_size
        return Sampling(**drawing.parameters, max_len=max_len, tensor_parallel_size=size)

    def _longest(self, name: str, new_tokens: int) -> int:
        prompts, room = self.prompts[name], self.context - new_tokens
        lengths = {prompt.id: len(prompt_tokens(prompt, self.tokenizer, self.marks)) for prompt in prompts}
        long = [f"{prompt_id} ({length})" for prompt_id, length in lengths.items() if length > room]
        if long:
            raise DataError(
                f"{name}: {len(long)} of {len(prompts)} prompts are too long: a context of {self.context} tokens with "
                f"{new_tokens} new tokens leaves {max(room, 0)} for the prompt. Ids (tokens): {', '.join(long)}. "
                "Lower --max-new-tokens, or raise --context if the model allows it."
            )
        return max(lengths.values())

    @cached_property
    def passes(self) -> tuple[SamplingPass, ...]:
        """A sampling pass for each benchmark, once everything is checked; each benchmark's problems are written.

        Raises ConfigError for a model or template that does not exist, and what the other parts raise.
        """
        fingerprint, shard = model_fingerprint(self.request.model), self.request.shard
        for each in self.benchmarks:
            each.kind.check(each.kind.graded_row(problem.text, problem.row) for problem in each.problems)
        chunk, passes = prompts_per_chunk(self.sampling.n, detect().has_gpus), []
        for each, folder in zip(self.benchmarks, self.folders, strict=True):
            folder.keep_problems(each.problems)
            made, file = self._provenance(each, fingerprint), folder.responses(shard)
            own = shard.of(self.prompts[each.name])
            passes.append(SamplingPass(own, made, file, ResponseRow, ResponseRow.of, chunk))
        return tuple(passes)

    @property
    def folders(self) -> list[BenchmarkFolder]:
        return [BenchmarkFolder(self.request.out / each.name) for each in self.benchmarks]

    def _provenance(self, benchmark: LoadedBenchmark, fingerprint: str) -> EvaluationProvenance:
        around = str(getattr(self.tokenizer, "chat_template", None)) if self.template.chat else ""
        text = worded(self.template, benchmark.kind.instruction_for({})).text + around
        return EvaluationProvenance(
            benchmark=benchmark.name,
            title=benchmark.title,
            source=benchmark.source,
            problems_digest=set_digest(f"{problem.id}\0{problem.text}" for problem in benchmark.problems),
            problems=len(benchmark.problems),
            answers=benchmark.kind.model_dump(mode="json"),
            model=self.request.model,
            model_fingerprint=fingerprint,
            template=self.template.name,
            template_digest=hashlib.sha256(text.encode()).hexdigest()[:16],
            protocol=self.request.protocol,
            **self.request.drawing.parameters,
            context=self.context,
        )

    def draw(self, on_progress: OnRows) -> None:
        """Draw missing responses, on all visible GPUs if the request has no shard. What is drawn is kept."""
        everywhere = ShardedPass([each.path for each in self.passes], self.request.tensor_parallel_size)
        everywhere.draw(self.request.shard, self._draw_here, on_progress)

    def _draw_here(self, on_progress: OnRows) -> None:
        """The engine is started once, and only if responses are missing."""
        engine = cache(lambda: RolloutEngine(self.request.model, self.sampling, self.tokenizer, self.marks))
        for each in self.passes:
            each.run(engine, on_progress)
