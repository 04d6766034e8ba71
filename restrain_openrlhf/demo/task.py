"""The demo's task: additions with written-out digits, as prompts and as held-out problems, and its tokenizer."""

import random
import string
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restrain_openrlhf.data.gold_split import PromptOnly, SupervisedRow
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.errors import DataError

SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>")
BOX = r"\boxed{"
VOCABULARY = (*SPECIAL, BOX, *(character for character in string.printable if character not in "\r\x0b\x0c"))
DIGITS = 3
# One in this many additions is held out, by a hash of its text, so that both sets have all digits.
HELDOUT_ONE_IN = 10
TEN = 10
# Below half of the held-out additions, so that drawing distinct problems stays quick.
MOST_PROBLEMS = 40_000


@dataclass(frozen=True)
class Problem:
    """One addition; `answer` is gold and must not reach label-free training."""

    id: str
    problem: str
    answer: str


def training_problems(count: int, seed: int = 1) -> list[Problem]:
    """`count` distinct problems that are not held out. Raises DataError if there are fewer."""
    return _problems(count, seed, heldout=False)


def heldout_problems(count: int, seed: int = 2) -> list[Problem]:
    """`count` distinct problems that are in no training set. Raises DataError if there are fewer."""
    return _problems(count, seed, heldout=True)


def is_heldout(first: int, second: int) -> bool:
    """Whether an addition is held out: always the same, and the same for both orders of its operands."""
    return zlib.crc32(f"{min(first, second)}+{max(first, second)}".encode()) % HELDOUT_ONE_IN == 0


def _problems(count: int, seed: int, heldout: bool) -> list[Problem]:
    if not 1 <= count <= MOST_PROBLEMS:
        raise DataError(
            f"{count} additions were requested; the demo task gives 1 to {MOST_PROBLEMS:,}. "
            "Choose another number of steps or of prompts per step."
        )
    drawn: dict[str, Problem] = {}
    for first, second in _operands(random.Random(seed)):
        problem = f"{first}+{second}="
        if is_heldout(first, second) == heldout and problem not in drawn:
            drawn[problem] = Problem(f"add-{first}-{second}", problem, str(first + second))
        if len(drawn) == count:
            break
    return list(drawn.values())


def _operands(rng: random.Random) -> Iterator[tuple[int, int]]:
    low, high = 10 ** (DIGITS - 1), 10**DIGITS
    while True:
        yield rng.randrange(low, high), rng.randrange(low, high)


def solution(first: int, second: int, forgets: Callable[[], bool] = lambda: False) -> str:
    """Digits from the last to the first, then the boxed answer; `forgets` decides for each carry whether it is dropped.

    There is always one digit more than the operands have, so that the length says nothing about the sum.
    """
    digits, carry = "", 0
    for a, b in zip(reversed(str(first)), reversed(str(second)), strict=True):
        total = int(a) + int(b) + carry
        digits += str(total % 10)
        carry = 1 if total >= TEN and not forgets() else 0
    digits += str(carry)
    return f"{digits}\\boxed{{{digits[::-1]}}}"


def write_prompts(path: Path, problems: Sequence[Problem]) -> None:
    """The training file: prompts only."""
    write_rows(path, (PromptOnly(id=problem.id, problem=problem.problem) for problem in problems))


def write_gold(path: Path, problems: Sequence[Problem]) -> None:
    """Problems with their answers, for evaluation and for the supervised upper bound."""
    write_rows(path, (SupervisedRow(id=row.id, problem=row.problem, answer=row.answer) for row in problems))


def make_tokenizer() -> Any:
    """A Hugging Face fast tokenizer: a token per printable character and one for `\\boxed{`; other text is <unk>."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    ids = {token: number for number, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\\boxed\{|[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **names)
