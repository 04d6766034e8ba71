"""How a model is asked in an evaluation: sampling protocols, and Qwen2.5-Math's prompt templates, by their names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.examples import Example

INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."
# Where any of these is a token of the model, generation ends there (math_eval.py's stop words).
END_MARKS = ("</s>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>")


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


PAPER = SamplingProtocol("paper", n=16, temperature=0.6, top_p=0.95)
GREEDY = SamplingProtocol("greedy", n=1, temperature=0.0, top_p=1.0)
# sh/eval.sh and the defaults of math_eval.py in Qwen2.5-Math's evaluation: examples for multiple choice alone.
QWEN25_MATH = SamplingProtocol(
    "qwen25-math", n=1, temperature=0.0, top_p=1.0, max_new_tokens=2048, shots={"mmlu_stem": 5}
)
PROTOCOLS: Mapping[str, SamplingProtocol] = {entry.name: entry for entry in (PAPER, GREEDY, QWEN25_MATH)}


def choose_protocol(name: str, n: int | None, max_new_tokens: int | None, seed: int = 42) -> SamplingProtocol:
    """The protocol with the user's n and length (None: its own).

    Raises ConfigError for an unknown name, or n > 1 when greedy.
    """
    if name not in PROTOCOLS:
        raise ConfigError(f"--protocol {name!r}: is no protocol. Known: {', '.join(PROTOCOLS)}.")
    known = PROTOCOLS[name]
    protocol = replace(known, max_new_tokens=max_new_tokens or known.max_new_tokens, seed=seed)
    if n is None:
        return protocol
    if not protocol.temperature and n != 1:
        raise ConfigError(f"--n {n} with --protocol {name}: greedy responses are all equal. Leave --n out.")
    return replace(protocol, n=n)


@dataclass(frozen=True)
class Template:
    """`text` has {input} for the problem; `chat`: the tokenizer's chat template goes round it; `stops` end it.

    `splitter` stands between worked examples and problem (None: the template has no form for examples). With `one_turn`
    all stand in the problem's place, as in one turn of a chat; otherwise each has the text round it.
    """

    name: str
    text: str
    use: str
    chat: bool = False
    stops: tuple[str, ...] = ()
    splitter: str | None = None
    one_turn: bool = False


TEMPLATES: Mapping[str, Template] = {
    entry.name: entry
    for entry in (
        Template(
            "qwen25-math-cot",
            f"<|im_start|>system\n{INSTRUCTION}<|im_end|>\n<|im_start|>user\n{{input}}<|im_end|>\n<|im_start|>assistant\n",
            "Qwen2.5 and Qwen3, base and chat",
            splitter="\n\n",
            one_turn=True,
        ),
        Template(
            "qwen-boxed",
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
            f"<|im_start|>user\n{{input}}\n{INSTRUCTION}<|im_end|>\n<|im_start|>assistant\n",
            "Qwen chat, the instruction in the user's turn",
            splitter="\n\n",
        ),
        Template("cot", "Question: {input}\nAnswer: ", "base models", stops=("\n\nQuestion:",), splitter="\n\n\n"),
        Template(
            "direct",
            "Question: {input}\nAnswer: ",
            "base models, nothing ends a response but its end mark",
            splitter="\n\n",
        ),
        Template(
            "chat-boxed",
            f"{{input}}\n{INSTRUCTION}",
            "any chat model (Llama): its own chat template",
            chat=True,
            splitter="\n\n",
        ),
        Template("chat", "{input}", "any chat model: its own chat template round the problem as it is", chat=True),
        Template(
            "boxed",
            f"{{input}}\n{INSTRUCTION}",
            "base models, the instruction after the problem (`mathstral`)",
            splitter="\n\n",
        ),
        Template("plain", "{input}", "the problem as it is"),
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
        return _given(name)
    if name not in TEMPLATES:
        raise ConfigError(f"--template {name!r}: is no template. Known: {AUTO}, {', '.join(TEMPLATES)}.")
    template = TEMPLATES[name]
    if template.chat and not tokenizer.chat_template:
        raise ConfigError(f"--template {name}: the model's tokenizer has no chat template. Choose boxed or cot.")
    return template


def _given(text: str) -> Template:
    try:
        return Template("given", text.format("{input}"), "any model: the words of a training run")
    except (IndexError, KeyError, ValueError):
        raise ConfigError(f"--template {text!r}: has other braces than {{}}. Write them twice.") from None


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
