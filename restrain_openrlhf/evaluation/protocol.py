"""How a model is asked in an evaluation: sampling protocols, Qwen2.5-Math's prompt templates and worked examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind
from restrain_openrlhf.config.command_line import ANSWERS, choose_kind
from restrain_openrlhf.data.jsonl import read_rows
from restrain_openrlhf.errors import ConfigError

INSTRUCTION = MATHEMATICS.instruction
# Where any of these is a token of the model, generation ends there (math_eval.py's stop words).
END_MARKS = ("</s>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>")
EXAMPLES = Path(str(files("restrain_openrlhf.evaluation") / "qwen25_math"))
# As their load_prompt: the competitions have the examples of MATH, and MATH-500 is its part of 500 problems.
EXAMPLES_OF: Mapping[str, str] = {
    "math500": "math",
    "amc23": "math",
    "aime24": "math",
    "minerva_math": "minerva_math",
    "mmlu_stem": "mmlu_stem",
}


@dataclass(frozen=True)
class SamplingProtocol:
    """n responses per problem, of at most `max_new_tokens` tokens; the rest are vLLM's sampling parameters.

    `shots`: worked examples before each problem of a benchmark; those that are not named have none.
    """

    name: str
    n: int
    temperature: float
    top_p: float
    max_new_tokens: int = 4096
    seed: int = 42
    shots: Mapping[str, int] = field(default_factory=dict)

    @property
    def drawing(self) -> dict[str, Any]:
        """What a response's text depends on, beside model and prompt."""
        return {name: getattr(self, name) for name in ("n", "temperature", "top_p", "max_new_tokens", "seed")}


PAPER = SamplingProtocol("paper", n=16, temperature=0.6, top_p=0.95)
GREEDY = SamplingProtocol("greedy", n=1, temperature=0.0, top_p=1.0)
# sh/eval.sh and the defaults of math_eval.py in Qwen2.5-Math's evaluation: examples for multiple choice alone.
QWEN25_MATH = SamplingProtocol(
    "qwen25-math", n=1, temperature=0.0, top_p=1.0, max_new_tokens=2048, shots={"mmlu_stem": 5}
)
PROTOCOLS: Mapping[str, SamplingProtocol] = {entry.name: entry for entry in (PAPER, GREEDY, QWEN25_MATH)}


class Example(BaseModel, frozen=True):
    """A question with its worked answer."""

    question: str
    answer: str


class Request(BaseModel, frozen=True):
    """What a user asks of `restrain eval`, whose options these are; None: as the protocol or the model has it."""

    model: str = Field(description="Model: a hub id or a local folder.")
    benchmarks: str = Field(
        description="Comma-separated: names, NAME=PATH or paths, such as aime24,mine=m.jsonl; table1 and table3 are "
        "those of the paper's tables."
    )
    out: Path = Field(description="Output folder for responses, grades and results.")
    protocol: str = Field("paper", description="paper (T 0.6, top-p 0.95, 16 responses), greedy, or qwen25-math.")
    n: int | None = Field(None, ge=1, description="Responses per problem; else the protocol's.")
    shard: str = Field("0/1", description="I/K: run only shard I of K, counted from 0.")
    template: str = Field(
        "auto", description="Prompt template: a name, or a text with {} (docs/journeys/evaluation.md)."
    )
    benchmark_dir: Path | None = Field(None, description="Folder with local copies, NAME.jsonl; else the hub.")
    max_new_tokens: int | None = Field(None, ge=1, description="Longest response, in tokens; else the protocol's.")
    shots: int | None = Field(None, ge=0, description="Worked examples before each problem; else the protocol's.")
    context: int | None = Field(None, ge=2, description="Longest prompt with response, in tokens; else the model's.")
    seed: int = Field(42, description="The same seed gives the same responses.")
    tensor_parallel_size: int = Field(1, ge=1, description="GPUs per vLLM engine.")
    answers: str | None = Field(None, description=f"{ANSWERS} Else the benchmark's own; a file's are mathematics.")
    label: list[str] | None = Field(None, description="KEY=VALUE: label for figures, such as sigma=0.5. Repeatable.")

    def chosen_protocol(self) -> SamplingProtocol:
        """The protocol with the user's n, length and seed.

        Raises ConfigError for an unknown name, or n > 1 when greedy.
        """
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"--protocol {self.protocol!r}: is no protocol. Known: {', '.join(PROTOCOLS)}.")
        known = PROTOCOLS[self.protocol]
        if not known.temperature and (self.n or 1) != 1:
            raise ConfigError(
                f"--n {self.n} with --protocol {self.protocol}: greedy responses are all equal. Leave --n out."
            )
        length = self.max_new_tokens or known.max_new_tokens
        return replace(known, n=self.n or known.n, max_new_tokens=length, seed=self.seed)

    def examples(self, benchmark: str) -> tuple[Example, ...]:
        """The first of a benchmark, in their order. Raises ConfigError where there are not as many as asked for."""
        shots = self.chosen_protocol().shots.get(benchmark, 0) if self.shots is None else self.shots
        if not shots:
            return ()
        if benchmark not in EXAMPLES_OF:
            raise ConfigError(
                f"--shots {shots}: there are no examples for {benchmark}. Those that have some: "
                f"{', '.join(EXAMPLES_OF)}. Evaluate the others by themselves, with --shots 0."
            )
        found = read_rows(EXAMPLES / f"{EXAMPLES_OF[benchmark]}.jsonl", Example)
        if shots > len(found):
            raise ConfigError(f"--shots {shots}: {benchmark} has {len(found)} examples. Give {len(found)} at most.")
        return tuple(found[:shots])

    def kind(self) -> AnswerKind | None:
        """The kind of answer that is asked for. Raises ConfigError where there is no such kind."""
        return None if self.answers is None else choose_kind(self.answers)

    def labels(self) -> dict[str, str]:
        """By name. Raises ConfigError for one that is not KEY=VALUE."""
        parts = {text: text.partition("=") for text in self.label or []}
        for text, (key, _, value) in parts.items():
            if not (key and value):
                raise ConfigError(f"--label {text!r}: give KEY=VALUE, such as sigma=0.5.")
        return {key: value for key, _, value in parts.values()}

    def words(self) -> list[str]:
        """The command that asks for this, for a process of its own; it takes all visible GPUs."""
        given = self.model_dump(exclude_defaults=True, exclude={"label"})
        words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        return ["eval", *words, *(f"--label={text}" for text in self.label or [])]


@dataclass(frozen=True)
class Template:
    """`text` has {input} for the problem; `chat`: the tokenizer's chat template goes round it; `stops` end it.

    `splitter` stands between worked examples and problem (None: the template has no form for examples). With `one_turn`
    all stand in the problem's place, as in one turn of a chat; otherwise each has the text round it.
    """

    name: str
    text: str
    chat: bool = False
    stops: tuple[str, ...] = ()
    splitter: str | None = None
    one_turn: bool = False

    @property
    def adds_special_tokens(self) -> bool:
        """As vLLM does with a text prompt: a tokenizer's beginning mark, unless the chat template has written it.

        A template that begins with the mark gets no second one (reference/offline_engine.py).
        """
        return not self.chat


TEMPLATES: Mapping[str, Template] = {
    entry.name: entry
    for entry in (
        Template(
            "qwen25-math-cot",
            f"<|im_start|>system\n{INSTRUCTION}<|im_end|>\n<|im_start|>user\n{{input}}<|im_end|>\n<|im_start|>assistant\n",
            splitter="\n\n",
            one_turn=True,
        ),
        Template(
            "qwen-boxed",
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
            f"<|im_start|>user\n{{input}}\n{INSTRUCTION}<|im_end|>\n<|im_start|>assistant\n",
            splitter="\n\n",
        ),
        Template("cot", "Question: {input}\nAnswer: ", stops=("\n\nQuestion:",), splitter="\n\n\n"),
        Template("direct", "Question: {input}\nAnswer: ", splitter="\n\n"),
        Template("chat-boxed", f"{{input}}\n{INSTRUCTION}", chat=True, splitter="\n\n"),
        Template("chat", "{input}", chat=True),
        # Qwen2.5-Math calls it `mathstral`.
        Template("boxed", f"{{input}}\n{INSTRUCTION}", splitter="\n\n"),
        Template("plain", "{input}"),
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
            return Template("given", name.format("{input}"))
        except (IndexError, KeyError, ValueError):
            raise ConfigError(f"--template {name!r}: has other braces than {{}}. Write them twice.") from None
    if name not in TEMPLATES:
        raise ConfigError(f"--template {name!r}: is no template. Known: {AUTO}, {', '.join(TEMPLATES)}.")
    template = TEMPLATES[name]
    if template.chat and not tokenizer.chat_template:
        raise ConfigError(f"--template {name}: the model's tokenizer has no chat template. Choose boxed or cot.")
    return template


def render(template: Template, problem: str, tokenizer: Any, examples: Sequence[Example] = ()) -> str:
    """The prompt's text. As in Qwen2.5-Math's `construct_prompt`, spaces at either end are dropped.

    Raises ConfigError for examples in a template that has no form for them.
    """
    text = _with_examples(template, problem, examples).strip(" ")
    if not template.chat:
        return text
    turns = [{"role": "user", "content": text.strip()}]
    return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))


def _with_examples(template: Template, problem: str, examples: Sequence[Example]) -> str:
    if examples and template.splitter is None:
        able = ", ".join(each.name for each in TEMPLATES.values() if each.splitter is not None)
        raise ConfigError(f"--template {template.name}: has no form for examples. Choose one of {able}, or --shots 0.")
    splitter = template.splitter or ""
    if template.one_turn:
        turns = [f"{each.question}\n{each.answer}" for each in examples]
        return template.text.replace("{input}", splitter.join([*turns, problem]))
    worked = [template.text.replace("{input}", each.question) + each.answer for each in examples]
    return splitter.join([*worked, template.text.replace("{input}", problem)])


def end_tokens(tokenizer: Any) -> tuple[int, ...]:
    """The end marks that are tokens of this model: base models end with others than their own end of text."""
    vocabulary = tokenizer.get_vocab()
    return tuple(vocabulary[mark] for mark in END_MARKS if mark in vocabulary)
