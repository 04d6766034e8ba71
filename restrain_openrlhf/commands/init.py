"""`restrain init`: from a model and a file of prompts to two configurations to compare, and what they will need."""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, get_args

import typer
from jinja2 import Environment, PackageLoader
from pydantic import BaseModel, Field

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.answers.asked import COMPARED, compare_forms
from restrain_openrlhf.answers.kind import GOLD, PROBLEM
from restrain_openrlhf.answers.kinds.options import options_of
from restrain_openrlhf.answers.shown import Sample
from restrain_openrlhf.commands.options import to_folder, with_options
from restrain_openrlhf.config.checks import refuse_settings
from restrain_openrlhf.config.checks.model_files import context_of, template_of
from restrain_openrlhf.config.command_line import ANSWERS, KindOption, as_yaml, choose_kind, kind_word
from restrain_openrlhf.config.gpu_layout import rollout_batches
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.hours import CARDS, CardName, hours
from restrain_openrlhf.config.memory.estimate import estimate
from restrain_openrlhf.config.memory.lines import GIB
from restrain_openrlhf.config.memory.shape import model_file, shape_of
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.gold import GoldAnswer, sidecar_path
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.data.problems import plain_answer
from restrain_openrlhf.data.problems import with_options as with_choices
from restrain_openrlhf.data.prompt_reader import PromptReader, TextOrChat, reworded, text_of, with_answer
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.machine.devices import gpus, visible_gpus
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.prompts import PromptSource, all_rows, load_tokenizer, renderer

# The layouts that are tried: on one GPU the first that fits is taken, all parameters before LoRA.
ONE_GPU = (
    *("one_gpu/141gb/qwen3-4b-base", "one_gpu/24gb/qwen3-0.6b-base", "one_gpu/80gb/qwen3-4b-base"),
    *("one_gpu/80gb/qwen3-4b-base-lora", "one_gpu/24gb/qwen3-1.7b-base-lora"),
    *("one_gpu/24gb/llama3.2-3b-instruct-lora", "one_gpu/24gb/qwen3-4b-base-lora"),
)
SEVERAL_GPUS, CPU = ("dapo14k/qwen3-4b-base/restrain",), ("cpu/demo_capitals",)
# The share of a GPU's memory that a layout may fill, parameters of a small model, steps that prompts are repeated for,
# and prompts of the smallest file.
FILLED, SMALL_MODEL, LEAST_STEPS, FEWEST_PROMPTS = 0.9, 500_000_000, 100, 2
# The method of the first configuration.
WRITTEN = "restrain"
# New tokens that answers of a kind may need.
NEW_TOKENS = {"math": 2048, "code": 1024, "sql": 512}
SHORT = 256
# Kinds by what every prompt asks for, and then by the form of every gold answer.
BY_PROMPT = {"math": r"\\boxed", "json": r"\bJSON\b", "code": r"```python|\bPython function\b"}
BY_GOLD = {
    "choice": r"\(?[A-J]\)?",
    "number": r"[-+$€£]?\s?\d[\d,.]*\s?%?",
    "json": r"[\[{].*[\]}]",
    "math": r".*[\\^].*",
    "text": r".{1,200}",
}


class Init(BaseModel):
    """What the user says of the task."""

    model: str = Field(description="Base or instruction-tuned model: a folder, or a hub id.")
    prompts: Path = Field(description="Table of prompts: JSONL, JSON, CSV, TSV, Parquet or lines of text.")
    out: Annotated[Path, to_folder("New folder for configurations, prompts and held-out problems.")]
    compare: str = Field("ttrl", description="Method to compare RESTRAIN with.")
    answers: KindOption | None = Field(None, description=ANSWERS)
    votes: Path | None = Field(None, description="Reference of such prompts: the kind that agrees most in it is taken.")
    gpu: CardName | None = Field(None, description="The card; by default this machine's.")
    gpus: int | None = Field(None, ge=0, le=8, description="GPUs, or 0 for two CPU cores; by default this machine's.")
    chat: bool | None = Field(None, description="Use the model's chat template; by default its name decides.")
    prompt_column: str | None = Field(None, description="Column of the prompts, or several with commas.")
    answer_column: str | None = Field(None, description="Column of gold answers, which training does not get.")
    held_out: int = Field(100, ge=1, description="Problems to keep for evaluation; at most half of them.")


@dataclass(frozen=True)
class OwnRow:
    """A row of the user's file: the prompt, its gold answer if known, and the file's other columns."""

    prompt: TextOrChat
    answer: str | None
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class Setup:
    """What the configurations are made of. The `sentence` that asks for an answer is empty where the prompts ask.

    `count` GPUs of `card` are there, 0 on the CPU stack. `end` ends a response, None if the tokenizer is not here.
    """

    said: Init
    rows: Sequence[OwnRow]
    kind: AnswerKind
    in_chat_template: bool
    sentence: str
    count: int
    card: str
    longest: int = 0
    end: str | None = None

    @property
    def graded(self) -> bool:
        return all(each.answer is not None for each in self.rows)

    @property
    def held_out(self) -> int:
        return min(self.said.held_out, len(self.rows) // 2)

    @property
    def training(self) -> int:
        return len(self.rows) - self.held_out

    @property
    def new_tokens(self) -> int:
        return NEW_TOKENS.get(self.kind.name, SHORT)

    @property
    def max_len(self) -> int:
        """Tokens of prompt and response. Raises ConfigError if the model reads fewer."""
        needed, context = -(-(self.longest + self.new_tokens) // 64) * 64, context_of(self.said.model)
        if context is not None and needed > context:
            raise ConfigError(
                f"{self.said.model}: reads {context} tokens at most, but the longest prompt ({self.longest}) and "
                f"{self.new_tokens} new ones are more. Shorten the prompts, or choose another model."
            )
        return needed

    @property
    def batch(self) -> int:
        """Prompts of a step, a power of two."""
        most = 16 * self.count if self.count > 1 else 32 if self.count else 8
        return 1 << min(most, self.training).bit_length() - 1

    def prompt(self, each: OwnRow) -> TextOrChat:
        """A prompt as it is written. In a chat template, it has to ask for the answer itself."""
        asks = self.in_chat_template and self.sentence
        return reworded(each.prompt, lambda text: f"{text}\n{self.sentence}") if asks else each.prompt

    def row(self, place: int, graded: bool) -> dict[str, Any]:
        """A row of the prompts, or a `graded` one of the held-out problems."""
        each = self.rows[place]
        answer = {"answer": each.answer} if graded and each.answer is not None else {}
        return {"id": str(place), PROBLEM: self.prompt(each), **answer, **self.kind.own_columns(each.columns, graded)}


@with_options(Init)
def init(options: Init) -> None:
    """Write a configuration for your model and prompts, a second one to compare with, and say what they need.

    Held-out problems are kept for evaluation, and training gets no answers. Nothing is started.
    """
    if options.out.exists() and any(options.out.iterdir()):
        raise ConfigError(f"--out {options.out}: is not empty. Name a new folder.")
    if build(parse_settings({"name": options.compare})).needs_gold or options.compare == WRITTEN:
        raise ConfigError(f"--compare {options.compare}: name a method other than RESTRAIN that needs no gold answers.")
    reader = PromptReader("--prompt-column", options.prompt_column)
    rows = _asked(options, reader)
    kind, why = _kind(options, rows)
    if kind.name == "choice":
        rows = [replace(each, prompt=with_choices(each.prompt, each.columns)) for each in rows]
    first = [(text_of(each.prompt), kind.row(text_of(each.prompt), each.columns)) for each in rows[:COMPARED]]
    sentence = kind.instruction_for(first[0][1]) if compare_forms(kind, first) else ""
    setup = Setup(options, rows, kind, _in_chat_template(options, reader.chats > 0), sentence, *_gpus(options))
    setup = _measured(setup)
    written, facts = _configurations(setup)
    _write(setup, written)
    typer.echo(_filled("init.txt.j2", setup, read=reader.summary(), why=why, **facts))


def _asked(options: Init, reader: PromptReader) -> list[OwnRow]:
    """The rows without repeated prompts. Raises DataError where a row has no prompt, and for a single prompt."""
    found: dict[str, OwnRow] = {}
    for where, given in all_rows(PromptSource(str(options.prompts))):
        row = with_answer(given)
        column = options.answer_column or next((name for name in row if name in GOLD), "")
        if options.answer_column and column not in row:
            raise DataError(f"{options.prompts}, {where}: has no column {column!r}. Correct --answer-column.")
        prompt = reader.read(f"{options.prompts}, {where}", row)
        answer = plain_answer({"answer": row[column]}) if row.get(column) not in (None, "") else None
        own = {name: each for name, each in row.items() if name not in (column, *reader.found)}
        found.setdefault(text_of(prompt), OwnRow(prompt, answer, own))
    if len(found) < FEWEST_PROMPTS:
        raise DataError(f"{options.prompts}: has fewer than two different prompts, and one is held out. Give more.")
    return list(found.values())


def _kind(options: Init, rows: Sequence[OwnRow]) -> tuple[AnswerKind, str]:
    """The kind of answer and why: what was said, or else what the votes agree in, or else the form of the rows."""
    if options.answers is not None:
        return options.answers, "as --answers says"
    word, why = _shown_by(rows)
    kind, sample = choose_kind(word), Sample()
    for row in load_reference(options.votes).rows if options.votes else ():
        sample.add(row.shown)
    if not (shares := sample.compared(kind) if sample.groups else []):
        return kind, f"{why}; `restrain premise` compares kinds once the model has voted"
    return choose_kind(f"{{name: {shares[0].kind}}}"), f"because in {options.votes} {shares[0]}"


def _shown_by(rows: Sequence[OwnRow]) -> tuple[str, str]:
    if all(options_of(each.columns) for each in rows):
        return "choice", "because each row has options"
    for name, form in BY_PROMPT.items():
        if all(re.search(form, text_of(each.prompt)) for each in rows):
            return name, "because the prompts ask for it"
    answers = [each.answer.strip() for each in rows if each.answer is not None]
    for name, form in BY_GOLD.items():
        if answers and all(re.fullmatch(form, each, re.DOTALL) for each in answers):
            return name, f"because of gold answers such as {answers[0][:40]!r}"
    if answers:
        raise ConfigError(f"No kind is for gold answers such as {max(answers, key=len)[:80]!r}. Give --answers.")
    return "math", "the default, because nothing in the file shows another (--answers names one)"


def _in_chat_template(options: Init, has_chats: bool) -> bool:
    """Whether prompts go through the chat template. Raises ConfigError where neither the user nor the name says it."""
    model, name = options.model, Path(options.model).name.lower()
    if has_chats and options.chat is False:
        raise ConfigError("--no-chat: the prompts are chats, which only a chat template can write. Leave it out.")
    if options.chat is not None or has_chats:
        return options.chat is not False
    if re.search(r"instruct|chat|(?:^|[-_])it(?:$|[-_])", name):
        return True
    if "base" in name or (model_file(model, "config.json") and not template_of(model)):
        return False
    raise ConfigError(f"{model}: is it instruction-tuned? Give --chat, or --no-chat for a base model.")


def _gpus(options: Init) -> tuple[int, str]:
    """How many GPUs, and of which card. Raises ConfigError for a card whose memory and speed are not known."""
    here = () if options.gpu or options.gpus == 0 else visible_gpus()
    count = options.gpus if options.gpus is not None else len(here) or int(options.gpu is not None)
    card = options.gpu or next((name for name in get_args(CardName) if here and name in gpus()[0].name), None)
    if count and card is None:
        raise ConfigError(f"The card of the {count} GPUs is not known. Give --gpu: {', '.join(CARDS)}.")
    return count, str(card or "")


def _measured(setup: Setup) -> Setup:
    """With the end token and the longest prompt's tokens; without the tokenizer, a token has two characters.

    Raises ConfigError where template, end token and model do not fit together (`why_unfit`).
    """
    prompts, model = list(map(setup.prompt, setup.rows)), setup.said.model
    behind = "" if setup.in_chat_template else setup.sentence
    if not (model_file(model, "tokenizer.json") and find_spec("transformers")):
        return replace(setup, longest=(max(len(text_of(each)) for each in prompts) + len(behind)) // 2 + 50)
    tokenizer = load_tokenizer(model, source := PromptSource("", apply_chat_template=setup.in_chat_template))
    render = renderer(source, tokenizer)
    longest, more = max(len(tokenizer(render(each))["input_ids"]) for each in prompts), tokenizer(behind)["input_ids"]
    return replace(setup, longest=longest + len(more), end=tokenizer.eos_token)


def _configurations(setup: Setup) -> tuple[dict[str, str], dict[str, Any]]:
    """Both texts by their file's name, over the first layout that fits, and what the summary says of the run.

    Raises ConfigError as `restrain show` would, where no layout fits, and for a model whose shape is not known here.
    """
    shape = shape_of(setup.said.model)
    memory = CARDS[setup.card].gib * GIB if setup.count else None
    for layout in CPU if not setup.count else SEVERAL_GPUS if setup.count > 1 else ONE_GPU:
        texts = dict(_texts(setup, layout, is_small=shape.parameters < SMALL_MODEL))
        with TemporaryDirectory() as made:
            for name, text in texts.items():
                (Path(made) / name).write_text(text, encoding="utf-8")
            configs = [load_run_config(Path(made) / name) for name in texts]
        flags = flags_of(configs[0])
        found = estimate(flags, shape, memory)
        if memory is None or found.peak[1] <= FILLED * memory:
            for each in configs:
                refuse_settings(each, flags_of(each), memory)
            steps = rollout_batches(setup.training, flags)
            needs = hours(flags, shape, CARDS[setup.card], steps, setup.training) if setup.count else None
            return texts, {"steps": steps, "found": found, "gib": GIB, "needs": needs}
    raise ConfigError(
        f"{setup.said.model}: {shape.parameters:,} parameters fit no layout of {setup.count} × {setup.card}. Use one "
        "with more memory, several (--gpus 8), or a smaller model."
    )


def _texts(setup: Setup, layout: str, is_small: bool) -> Iterator[tuple[str, str]]:
    template = "{}\n" + setup.sentence.replace("{", "{{").replace("}", "}}")
    own = template if setup.sentence and not setup.in_chat_template else None
    block = word if (word := kind_word(setup.kind)).startswith("{") else f"{{name: {word}}}"
    episodes = max(1, -(-LEAST_STEPS // -(-setup.training // setup.batch)))
    given = {"layout": layout, "is_small": is_small, "template": json.dumps(own, ensure_ascii=False)}
    yield "restrain.yaml", _filled("init.yaml.j2", setup, kind=block, episodes=episodes, **given)
    run = as_yaml(f"runs/{setup.said.out.name}-{setup.said.compare}")
    about = f"# {setup.said.compare} for comparison: all else is as in restrain.yaml.\nextends: restrain.yaml\n"
    yield f"{setup.said.compare}.yaml", f"{about}run_dir: {run}\nmethod: {{name: {setup.said.compare}}}\n"


def _filled(file: str, setup: Setup, **given: object) -> str:
    environment = Environment(loader=PackageLoader(__package__, ""), trim_blocks=True, keep_trailing_newline=True)
    environment.filters["yaml"] = as_yaml
    return environment.get_template(file).render(setup=setup, said=setup.said, out=setup.said.out, **given)


def _write(setup: Setup, configurations: Mapping[str, str]) -> None:
    """The split, of which training does not see the held-out part, its gold beside it, and the configurations."""
    out, places = setup.said.out, range(len(setup.rows))
    held = set(random.Random(0).sample(places, setup.held_out))
    rest = [place for place in places if place not in held]
    gold = [
        GoldAnswer(prompt_hash=text_hash(text_of(setup.prompt(each))), answer=each.answer).model_dump()
        for each in (setup.rows[place] for place in rest)
        if each.answer is not None
    ]
    files = {
        "heldout.jsonl": [setup.row(place, graded=True) for place in sorted(held)],
        "prompts.jsonl": [setup.row(place, graded=False) for place in rest],
        **({sidecar_path(Path("prompts.jsonl")).name: gold} if gold else {}),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in (*((name, "".join(map(dump, rows))) for name, rows in files.items()), *configurations.items()):
        write_whole(out / name, text)
