"""A judge's verdicts on answers: asked once, kept in this process and in a folder, counted, and never guessed."""

import hashlib
import json
import operator
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from restrain_openrlhf.errors import GraderError

# A question is what an HTTP judge is sent: `answers` or `pairs`, and `row`. A reply has `classes` or `equal`.
Ask = Callable[[Mapping[str, Any]], Any]
Pair = tuple[str, str]
MOST_KNOWN = 1 << 17


@dataclass
class Cost:
    """How many verdicts (on a group or a pair) were asked of the judge, and how many were known already."""

    calls: int = 0
    cached: int = 0


@dataclass
class Verdicts:
    """A judge with its known verdicts. Safe to use from several threads.

    The name `judge` keeps the verdicts of different judges in one folder apart.
    """

    ask: Ask
    judge: str
    folder: Path | None = None
    cost: Cost = field(default_factory=Cost)
    _known: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def classes(self, answers: Sequence[str], row: Mapping[str, Any]) -> list[int]:
        """A number for each answer, equal for equal answers. Raises GraderError if the judge gives none."""
        question = {"answers": list(answers), "row": dict(row)}
        known: list[int] | None = self._find(question)
        if known is None:
            known = class_numbers(self.ask(question), len(answers))
            self._keep(question, known)
        return known

    def equal(self, pairs: Sequence[Pair], row: Mapping[str, Any]) -> list[bool]:
        """Whether the two answers of each pair are equal. Raises GraderError if the judge does not say."""
        questions = {pair: {"pair": list(pair), "row": dict(row)} for pair in pairs}
        verdicts = {pair: self._find(question) for pair, question in questions.items()}
        if new := [pair for pair, verdict in verdicts.items() if verdict is None]:
            told = truths(self.ask({"pairs": [list(pair) for pair in new], "row": dict(row)}), len(new))
            for pair, verdict in zip(new, told, strict=True):
                self._keep(questions[pair], verdict)
                verdicts[pair] = verdict
        return [bool(verdicts[pair]) for pair in pairs]

    def _find(self, question: Mapping[str, Any]) -> Any:
        """The verdict on a question that was asked before; None if it was not, or its file is damaged."""
        name = self._name(question)
        if name not in self._known and self.folder is not None:
            with suppress(OSError, ValueError, TypeError, KeyError):
                kept = json.loads(self._file(name).read_text(encoding="utf-8"))
                if kept["question"] == question:
                    self._known[name] = kept["verdict"]
        found = self._known.get(name)
        with self._lock:
            self.cost.cached += found is not None
            self.cost.calls += found is None
        return found

    def _keep(self, question: Mapping[str, Any], verdict: object) -> None:
        """Keep a verdict here and in the folder, whole or not at all. Raises GraderError if writing fails."""
        name = self._name(question)
        with self._lock:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[name] = verdict
        if self.folder is None:
            return
        text = json.dumps({"judge": self.judge, "question": question, "verdict": verdict})
        try:
            file = self._file(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as beside:
                beside.write(text)
            os.replace(beside.name, file)
        except OSError as error:
            raise GraderError(
                f"{self.folder}: the judge's verdict could not be written there ({error}). Free some space, or name "
                "another folder under `answers.cache`."
            ) from error

    def _name(self, question: Mapping[str, Any]) -> str:
        return hashlib.sha256(json.dumps([self.judge, question], sort_keys=True).encode()).hexdigest()

    def _file(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / name[:2] / f"{name}.json"


def class_numbers(reply: Any, n: int) -> list[int]:
    """The `classes` of a reply on n answers. Raises GraderError if they are not n whole numbers."""
    found = _entries(reply, "classes")
    with suppress(TypeError):
        numbers = [operator.index(each) for each in found if not isinstance(each, bool)]
        if len(numbers) == len(found) == n:
            return numbers
    raise _unreadable(reply, f"`classes`: {n} whole numbers, equal numbers for equal answers")


def truths(reply: Any, n: int) -> list[bool]:
    """The `equal` of a reply on n pairs. Raises GraderError if it is not n times true or false."""
    found = _entries(reply, "equal")
    if len(found) == n and all(isinstance(each, bool) for each in found):
        return found
    raise _unreadable(reply, f"`equal`: {n} values, each true or false")


def _entries(reply: Any, name: str) -> list[Any]:
    found = reply.get(name) if isinstance(reply, Mapping) else None
    return list(found) if isinstance(found, Iterable) and not isinstance(found, str | bytes | Mapping) else []


def _unreadable(reply: Any, wanted: str) -> GraderError:
    return GraderError(
        f"The judge replied {repr(reply)[:200]}; expected was {wanted}. Correct the judge (docs/concepts/kinds.md)."
    )


def joined(answers: Sequence[str], equal: Mapping[Pair, bool], connect: bool) -> list[int]:
    """Classes of sorted answers from the verdicts on all pairs. Answers that equal pairs connect are one class.

    Without `connect`, raises GraderError if a pair within one class was judged different.
    """
    label = {answer: number for number, answer in enumerate(answers)}
    for (first, second), verdict in equal.items():
        if verdict:
            kept, gone = sorted((label[first], label[second]))
            label = {answer: kept if number == gone else number for answer, number in label.items()}
    for (first, second), verdict in equal.items():
        if not (verdict or connect) and label[first] == label[second]:
            raise GraderError(
                f"The judge contradicts itself: it says that {first[:80]!r} and {second[:80]!r} differ, and that both "
                "equal other answers of the group. Correct the judge, ask it about whole groups (`asks: group`), or "
                "set `contradictions: connect`, which makes one class of every chain of equal pairs."
            )
    return [label[answer] for answer in answers]
