"""Reads the prompt in a row of a table: from which columns, as a text or as a chat, and never with its answer."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from restrain_openrlhf.answers.kind import GOLD, parse_cell
from restrain_openrlhf.data.tables import LINE, Cells
from restrain_openrlhf.errors import DataError

# A chat has messages {role, content}, which a chat template gets as they are. The model answers the last one.
Chat = list[dict[str, Any]]
TextOrChat = str | Chat

# Names of columns that hold prompts, in any case: of MATH and GSM8K, of TTRL and verl, of OpenAI, and of Alpaca.
PROMPTS = ("problem", "question", "prompt", "messages", "instruction", "input", LINE)
# Names of columns without which the prompt beside them is not the whole question.
PARTS = ("system", "system_prompt", "context", "passage", "document")
ANSWERS = GOLD | {"answers", "output", "response", "completion", "chosen", "reward_model"}
# The gold answer in verl's data sets.
GROUND_TRUTH = "reward_model.ground_truth"
CHAT_AS_TEXT = re.compile(r"""\s*\[\s*\{\s*['"](?:role|content)['"]\s*:.*\]\s*\Z""", re.DOTALL)
# Characters that no prompt has on purpose: nobody sees them, but a model does.
UNSEEN = {"\0": "a NUL character", "\ufeff": "a byte order mark"}


def text_of(prompt: TextOrChat) -> str:
    """A prompt as one text, by which its gold is found and which its kind of answer reads.

    Of a chat it is each message behind its role, with blank lines between them.
    """
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in prompt)


def reworded(prompt: TextOrChat, change: Callable[[str], str]) -> TextOrChat:
    """The prompt with its text changed, or that of a chat's last message."""
    if isinstance(prompt, str):
        return change(prompt)
    return [*prompt[:-1], {**prompt[-1], "content": change(prompt[-1]["content"])}]


def is_chat(value: object) -> bool:
    """Whether a cell holds a chat: a list, or the text of one, as in a CSV file."""
    return isinstance(value, list) or (isinstance(value, str) and CHAT_AS_TEXT.match(value) is not None)


def has_column(row: Cells, name: str) -> bool:
    """Whether a row has a column. `reward_model.ground_truth` is the key `ground_truth` of the object in a column."""
    outer, _, key = name.partition(".")
    return name in row or (isinstance(row.get(outer), dict) and key in row[outer])


def column_of(row: Cells, name: str) -> Any:
    """The value of a column for which `has_column` holds."""
    outer, _, key = name.partition(".")
    return row[name] if name in row else row[outer][key]


def with_answer(row: Cells) -> Cells:
    """The row with its gold answer in the column `answer`, also if it has verl's form."""
    is_verls = "answer" not in row and has_column(row, GROUND_TRUTH)
    return {**row, "answer": column_of(row, GROUND_TRUTH)} if is_verls else row


@dataclass
class PromptReader:
    """Reads the prompts of one table, row by row, and counts what it reads.

    `column` is what the user named with `flag`: a column, or several that are joined by commas and whose texts are put
    one below the other. If it is None, or only the default of the flag and not there, it is the only column of a known
    name that is not empty. A `note` is said below the summary.
    """

    flag: str
    column: str | None = None
    is_default: bool = False
    rows: int = 0
    chats: int = 0
    found: Sequence[str] = ()
    leaves_answers: bool = False
    note: str = ""

    def read(self, where: str, row: Cells) -> TextOrChat:
        """The prompt of a row, without the assistant's messages at its end, which are its answer.

        Raises DataError, which begins with `where`, for a row without a prompt, with several, or with another column
        than the rows before, and for a prompt that is neither a text nor a chat.
        """
        try:
            columns = self._columns(row)
            chat = _chat(value := _joined([column_of(row, name) for name in columns]))
            prompt = _text(value) if chat is None else _asked(chat)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        is_answered = chat is not None and chat[-1]["role"] == "assistant"
        self.leaves_answers |= is_answered or any(name.lower() in ANSWERS for name in row)
        self.found, self.rows, self.chats = columns, self.rows + 1, self.chats + (chat is not None)
        return prompt

    def summary(self) -> str:
        """What was read as what, in a line, and the note in another."""
        chats = {0: "", self.rows: " (a chat)"}.get(self.chats, f" ({self.chats} of them a chat)")
        source = LINE if LINE in self.found else f"column{'s' * (len(self.found) > 1)} {_and(self.found)}{chats}"
        read = f"prompts: {self.rows:,} from {source}{', answers left out' * self.leaves_answers}"
        return f"{read}\n{self.note}" if self.note else read

    def _columns(self, row: Cells) -> list[str]:
        """The columns of a row's prompt, which are the same in every row."""
        columns = self._named(row) or self._only(row)
        if self.found and columns != self.found:
            raise DataError(
                f"its prompt is in {_and(columns)}, but that of the rows before is in {_and(self.found)}. Use the same "
                "columns in all rows."
            )
        return columns

    def _named(self, row: Cells) -> list[str]:
        """The columns that the user named, if any. Raises DataError for a column that is not there."""
        if self.column is None:
            return []
        named = [self.column] if has_column(row, self.column) else self.column.split(",")
        if all(has_column(row, name) for name in named):
            return named
        if self.is_default:
            return []
        raise DataError(f"has no column {self.column!r}; {_its_columns(row)}. Name another with {self.flag}.")

    def _only(self, row: Cells) -> list[str]:
        """The only column that can be the prompt. Raises DataError if there is none, and if there are several."""
        known = {name.lower(): name for name in row if name}
        there = [known[name] for name in PROMPTS if name in known]
        if not there:
            raise DataError(
                f"has no known column of prompts; {_its_columns(row)}. Name the right one with {self.flag}."
            )
        filled = [known[name] for name in (*PARTS, *PROMPTS) if name in known and _is_filled(row[known[name]])]
        if len(filled) > 1:
            raise DataError(
                f"its prompt may be {_and(filled)}. Name the column with {self.flag}, or several with commas between "
                f"them ({','.join(filled)}), whose texts are then put one below the other."
            )
        return filled if set(filled) & set(there) else there[:1]


def _and(names: Sequence[str]) -> str:
    return " and ".join(map(repr, names))


def _its_columns(row: Cells) -> str:
    return f"its columns are {', '.join(sorted(map(str, row)))}"


def _is_filled(value: object) -> bool:
    return bool(value.strip()) if isinstance(value, str) else value not in (None, [])


def _joined(values: Sequence[object]) -> object:
    """The only value, or the texts one below the other."""
    return values[0] if len(values) == 1 else "\n".join(_text(each) for each in values if _is_filled(each))


def _chat(value: object) -> Chat | None:
    """The messages of a chat, also of one in a cell of a CSV file; None for what is no list."""
    if isinstance(value, str) and is_chat(value) and isinstance(value := parse_cell(value), str):
        raise DataError(f"its prompt looks like a chat, but is not JSON: {value[:60]}. Write the file as JSON Lines.")
    if not isinstance(value, list):
        return None
    if not value or not all(map(_is_message, value)):
        raise DataError(
            f"its prompt is the list {str(value)[:60]}, and no chat of messages whose `role` and `content` are texts. "
            "Correct the row."
        )
    return value


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("role", "content"))


def _asked(chat: Chat) -> TextOrChat:
    """A chat without its answer; its text, if it is one message by the user."""
    asked = chat[: max((place for place, each in enumerate(chat, 1) if each["role"] != "assistant"), default=0)]
    if not asked or asked[-1]["role"] not in ("user", "tool"):
        raise DataError("its prompt is a chat in which the user says nothing at the end. Correct the row.")
    for message in asked[:-1]:
        _seen(message["content"])
    text, said = _text(asked[-1]["content"]), {key for key, value in asked[0].items() if value is not None}
    return text if len(asked) == 1 and said == {"role", "content"} and asked[0]["role"] == "user" else asked


def _text(value: object) -> str:
    if not _is_filled(value):
        raise DataError("its prompt is empty. Fill it in, or remove the row.")
    if not isinstance(value, str):
        raise DataError(f"its prompt is {str(value)[:60]}, and no text. Write it in quotes, or name another column.")
    return _seen(value)


def _seen(text: str) -> str:
    if found := [name for character, name in UNSEEN.items() if character in text]:
        raise DataError(f"its prompt has {found[0]} in it. Remove the character.")
    return text
