"""The prompts that a policy is trained on, loaded and rendered as OpenRLHF does it, and checked."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Self

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, Row
from restrain_openrlhf.answers.asked import compare_forms
from restrain_openrlhf.answers.kind import PROBLEM
from restrain_openrlhf.config.checks.keys import UNSAID, unfit_template, why_dropped
from restrain_openrlhf.config.checks.model_files import template_of, why_unfit
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.gold import stated_gold
from restrain_openrlhf.data.prompt_reader import PromptReader, TextOrChat, column_of, has_column, text_of
from restrain_openrlhf.data.sources import HUB, HubSet, placed_rows_of
from restrain_openrlhf.data.tables import is_table
from restrain_openrlhf.errors import ConfigError, DataError

# The beginning of the identity of every chat template.
CHAT = "chat template"
# The tag that the host replaces by a picture in a chat.
PICTURE = "<image>"


@dataclass(frozen=True)
class PromptSource:
    """Where prompts come from and how they are rendered; the fields are OpenRLHF's `data.*` flags.

    `apply_chat_template` is None if nobody has said yes or no, which is refused if the tokenizer has a chat template.
    """

    dataset: str
    input_key: str = "input"
    input_template: str | None = None
    apply_chat_template: bool | None = False
    split: str = "train"
    max_samples: int = 100_000_000
    image_key: str = "images"

    def reader(self) -> PromptReader:
        """What reads the prompts. `problem` and `input` are defaults, and may not be meant."""
        named = None if self.input_key == "input" else self.input_key
        return PromptReader("data.input_key", named, is_default=named == "problem")


def prompt_source(flags: Flags) -> PromptSource:
    """The source that the host's `data.*` flags name.

    Raises ConfigError if they name no training file, or several.
    """
    dataset = flags["data.prompt_dataset"]
    if not dataset:
        raise ConfigError("data.prompt_dataset is not set. Name the training file or data set.")
    if "," in dataset and not Path(dataset).exists():
        raise ConfigError(
            f"data.prompt_dataset names several data sets ({dataset}), but votes and prompt weights need one set "
            "without duplicates. Join them into one file."
        )
    names = ("input_key", "input_template", "apply_chat_template", "max_samples", "image_key")
    return PromptSource(dataset, split=flags["data.prompt_split"], **{name: flags[f"data.{name}"] for name in names})


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: `problem` is the data set's text, `text` what the policy sees, and `where` names it in errors.

    `columns` has what the kind of answer reads besides the problem.
    """

    id: str | int | None
    problem: str
    text: str
    where: str
    columns: Row = field(default_factory=dict)

    @property
    def row(self) -> Row:
        """What the kind of answer reads of the prompt."""
        return {PROBLEM: self.problem, **self.columns}


def load_tokenizer(model: str, source: PromptSource) -> Any:
    """The tokenizer, as openrlhf/utils/utils.py loads it. Raises ConfigError where it does not fit the model."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - costs seconds; bad input is told before

    tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=True)
    if reason := why_unfit(model, bool(source.apply_chat_template)):
        raise ConfigError(reason)
    return tokenizer


def load_prompts(
    source: PromptSource, tokenizer: Any = None, kind: AnswerKind = MATHEMATICS, reader: PromptReader | None = None
) -> list[Prompt]:
    """All prompts in the file's order. A `tokenizer` is only needed with a chat template, and a `reader` for what was
    read as what. Rows beyond the source's `max_samples` are checked but not returned.

    Raises DataError naming file and line for a damaged row, a missing, empty or repeated prompt, and an empty set, and
    ConfigError for an input template that a chat template would replace.
    """
    if reason := why_dropped(source.input_template, source.apply_chat_template, kind):
        raise ConfigError(reason)
    render, reader = renderer(source, tokenizer), reader or source.reader()
    prompts, seen = list[Prompt](), dict[str, str]()
    for where, row in all_rows(source):
        prompt = _prompt(source, where, row, reader, render, kind)
        if len(prompts) >= source.max_samples:
            continue
        if (first := seen.setdefault(prompt.text, where)) is not where:
            raise DataError(
                f"{source.dataset}: {first} and {where} hold the same prompt ({prompt.problem[:60]!r}). Remove one: a "
                "prompt's weight u_x must not count twice."
            )
        prompts.append(prompt)
    if not prompts:
        raise DataError(f"{source.dataset}: has no prompts. Give a file with at least one row.")
    return prompts


def note_on_run(config: HookConfig, flags: Flags) -> str:
    """The note of `compare_forms` on a run that is only shown; empty if its prompts or their tokenizer are not here."""
    model, in_chat_template = str(flags["actor.model_name_or_path"]), flags["data.apply_chat_template"]
    can_render = not in_chat_template or (template_of(model) and find_spec("transformers"))
    if config.agent or not can_render or not Path(flags["data.prompt_dataset"] or "no prompts").exists():
        return ""
    source = prompt_source(flags)
    render, reader = renderer(source, load_tokenizer(model, source) if in_chat_template else None), source.reader()
    prompts = (_prompt(source, where, row, reader, render, config.answers) for where, row in all_rows(source))
    return compare_forms(config.answers, ((prompt.text, prompt.row) for prompt in prompts))


def renderer(source: PromptSource, tokenizer: Any) -> Callable[[TextOrChat], str]:
    """Renders a prompt as the policy's text (openrlhf/datasets/prompts_dataset.py, preprocess_data).

    Raises ConfigError or DataError where the tokenizer has a chat template, or lacks one, against what `source` says;
    ConfigError for an input template without a place.
    """
    if reason := unfit_template(source.input_template):
        raise ConfigError(reason)
    chat_template = getattr(tokenizer, "chat_template", None)
    if source.apply_chat_template is None and chat_template is not None:
        raise ConfigError(UNSAID)
    if source.apply_chat_template:
        if chat_template is None:
            raise DataError(
                "data.apply_chat_template is set, but the model's tokenizer has no chat template. Remove the flag and "
                "give data.input_template, or use the instruction-tuned model."
            )
        return lambda asked: in_chat_template(asked, tokenizer)
    template = source.input_template or "{}"
    return lambda asked: template.format(text_of(asked))


def in_chat_template(asked: TextOrChat, tokenizer: Any) -> str:
    """A prompt as a model's chat template writes it. Raises DataError for a chat that the template refuses."""
    from jinja2 import TemplateError  # noqa: PLC0415 - clients of the scoring service need no templates

    messages = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except TemplateError as error:
        roles = ", ".join(message["role"] for message in messages)
        raise DataError(f"the model's chat template refuses a chat of {roles} ({error}). Change the chat.") from None


def begins_with_mark(text: str, tokenizer: Any) -> bool:
    """Whether a text begins with the tokenizer's beginning mark, such as Llama's <|begin_of_text|>."""
    mark: str | None = getattr(tokenizer, "bos_token", None)
    return mark is not None and text.startswith(mark)


def refuse_lost_mark(text: str, tokenizer: Any) -> None:
    """Raises ConfigError if the tokenizer begins every text with a mark that OpenRLHF would leave out.

    OpenRLHF tokenizes prompts without special tokens (openrlhf/utils/agent.py). A chat template writes the mark itself,
    but without one the model would lack a mark that it has seen before every text, and that evaluations give it.
    """
    mark = getattr(tokenizer, "bos_token_id", None)
    if mark is None or begins_with_mark(text, tokenizer) or tokenizer("a")["input_ids"][:1] != [mark]:
        return
    raise ConfigError(
        f"The model's tokenizer begins every text with {tokenizer.bos_token!r}, but the prompts do not, and OpenRLHF "
        "adds no special tokens: training would differ from evaluation. Begin data.input_template with that token: "
        f'"{tokenizer.bos_token}{{}}".'
    )


def template_identity(source: PromptSource, tokenizer: Any = None) -> str:
    """A short text that is equal for two sources exactly when they render alike. A chat template enters by its hash."""
    if source.apply_chat_template:
        template = str(getattr(tokenizer, "chat_template", None))
        return f"{CHAT} {hashlib.sha256(template.encode()).hexdigest()[:16]}"
    return f"input template {source.input_template!r}" if source.input_template else "none"


def prompt_set_hash(hashes: Iterable[str]) -> str:
    """The identity of a set of prompts in any order, from the `text_hash` of each prompt's text."""
    return hashlib.sha256(b"".join(sorted(map(bytes.fromhex, hashes)))).hexdigest()


def all_rows(source: PromptSource) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every row with its place, unchecked. Raises DataError if the data set cannot be read or downloaded."""
    path = Path(source.dataset)
    place = source.dataset if path.exists() or is_table(path) else HUB
    return placed_rows_of(HubSet(source.dataset, split=source.split), place)


def count_labelled(source: PromptSource, column: str, kind: AnswerKind) -> tuple[int, int]:
    """How many rows have a gold answer in this column, and how many rows there are. Raises DataError as `gold_in`."""
    found = [
        has_column(row, column) and stated_gold(kind, column_of(row, column), f"{source.dataset}, {where}") is not None
        for where, row in islice(all_rows(source), source.max_samples)
    ]
    return sum(found), len(found)


def asked_in(source: PromptSource, where: str, row: Mapping[str, Any], reader: PromptReader) -> TextOrChat:
    """The prompt in a row. Raises DataError as the reader does, and for a chat where no chat template writes it."""
    asked = reader.read(f"{source.dataset}, {where}", row)
    if isinstance(asked, list) and not source.apply_chat_template:
        raise DataError(
            f"{source.dataset}, {where}: its prompt is a chat of {len(asked)} messages, which only the model's chat "
            "template can write. Set data.apply_chat_template, or name a column of texts with data.input_key."
        )
    return asked


def problems_of(source: PromptSource) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The text and the row of each prompt, without its template. Raises DataError as `asked_in` does."""
    reader = source.reader()
    for where, row in all_rows(source):
        yield text_of(asked_in(source, where, row, reader)), row


def _prompt(
    source: PromptSource,
    where: str,
    row: Mapping[str, Any],
    reader: PromptReader,
    render: Callable[[TextOrChat], str],
    kind: AnswerKind,
) -> Prompt:
    asked = asked_in(source, where, row, reader)
    problem = text_of(asked)
    # The host would make another prompt (openrlhf/datasets/prompts_dataset.py).
    if row.get(source.image_key) or (source.apply_chat_template and PICTURE in problem):
        raise DataError(
            f"{source.dataset}, {where}: has pictures (the column {source.image_key!r}, or the tag {PICTURE} in a "
            "chat), which are not supported. Remove the row, name another data.image_key, or write another tag."
        )
    try:
        prompt = Prompt(row.get("id"), problem, render(asked), where, kind.own_columns(row))
        kind.check_prompt(prompt.text, prompt.row)
    except DataError as error:
        raise DataError(f"{source.dataset}, {where}: {error}") from None
    return prompt


@dataclass(frozen=True)
class PromptRows:
    """Rows by the texts of their problem, one for each message, for processes that only see a prompt's text.

    `file` is the file that they come from, None if there are no rows.
    """

    file: Path | None = None
    rows: Mapping[tuple[str, ...], Row] = field(default_factory=dict)

    @classmethod
    def of(cls, file: Path | None, kind: AnswerKind, graded: bool = False, reader: PromptReader | None = None) -> Self:
        """The rows of a file, with the columns that the kind of answer reads, and those of gold if `graded`.

        Without a file there are no rows. Raises DataError for a file that cannot be read, a row without a problem, and
        two different rows of one problem.
        """
        rows: dict[tuple[str, ...], Row] = {}
        own = kind.graded_row if graded else kind.row
        reader = reader or PromptReader("`restrain data prepare own --prompt-column`")
        for where, columns in all_rows(PromptSource(str(file))) if file is not None else ():
            asked = reader.read(f"{file}, {where}", columns)
            texts = [asked] if isinstance(asked, str) else [str(message["content"]) for message in asked]
            row = own(text_of(asked), columns)
            if rows.setdefault(tuple(text.strip() for text in texts), row) != row:
                raise DataError(
                    f"{file}, {where}: the problem {texts[-1][:60]!r} appears twice. Remove one of the two rows."
                )
        return cls(file, rows)

    def find(self, prompt: str) -> Row | None:
        """The row of the longest problem that the prompt contains; None if there are no rows at all.

        This works for every template, because the prompt contains the problem's text. A chat must be there with its
        last message, and of several chats it is one of which all is there, or else most. Raises DataError if the prompt
        contains no problem of the file.
        """
        if not self.rows:
            return None

        def there(texts: tuple[str, ...]) -> tuple[bool, int]:
            return all(text in prompt for text in texts), sum(len(text) for text in texts if text in prompt)

        found = max((texts for texts in self.rows if texts[-1] in prompt), key=there, default=None)
        if found is None:
            raise DataError(
                f"{self.file}: the prompt {prompt[:80]!r} contains none of its {len(self.rows)} problems. Name the "
                "file of these prompts under answer_rows."
            )
        return self.rows[found]
