"""The kind of answer `code`: its settings, the jobs of programs in the sandbox, and which programs are equal."""

import re
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from restrain_openrlhf.answers.kind import PROBLEM, AnswerKind, Row, number_classes, register
from restrain_openrlhf.answers.kinds.code_examples import shown_calls, shown_texts, shows_call, unread_examples
from restrain_openrlhf.answers.kinds.code_inputs import inputs_for
from restrain_openrlhf.answers.kinds.code_task import Task, program_of, read_task
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.machine.sandbox import outcome
from restrain_openrlhf.machine.sandbox.pool import DIED, Confinement, run_all
from restrain_openrlhf.machine.sandbox.program import RETURNED, Job

Outcomes = tuple[str, ...]
Way = Literal["calls", "script", "tests"]
FAILED = "!"
# Outcomes of recent jobs, which depend on nothing but the job.
MOST_KNOWN = 1 << 12
_KNOWN: dict[Job, Outcomes] = {}
RETURNED_NOTHING = RETURNED + outcome.digest("")
PASSED = RETURNED + outcome.digest("passed")
# Words by which a script's prompt says that the script reads an input.
_READS = re.compile(r"\b(?:stdin|standard input)\b|^\W{0,8}inputs?\b", re.IGNORECASE | re.MULTILINE)


class Expected(BaseModel):
    """One test of a script: its input, and what it should print."""

    input: str
    output: str


_EXPECTED = TypeAdapter(list[Expected])
_LINES = TypeAdapter(list[str])


@register
class Code(AnswerKind):
    """Programs in Python, equal if they return (or print) the same on the same inputs.

    The inputs come from the prompt: the calls in its examples, others like them, or values of its parameters' types;
    from the row's column `examples` where there is one. Neither tests nor gold are read. Programs run in a sandbox.
    """

    version: ClassVar[str] = "6"
    reads: ClassVar[str] = (
        "An answer is the last Python block that defines the function that the prompt leaves open, or the bare rest of "
        "that function; for a prompt without a function, the last Python block."
    )
    columns: ClassVar[frozenset[str]] = frozenset({"entry_point", "examples"})
    without_effect: ClassVar[frozenset[str]] = frozenset({"sandbox", "test_seconds"})
    instruction: ClassVar[str] = "Write the whole program in one fenced block of Python."

    name: Literal["code"] = "code"
    inputs: Annotated[int, Field(ge=1, le=500)] = 30
    """Number of inputs on which programs are compared. More inputs tell more programs apart."""
    ignore_order: bool = False
    """Whether lists with the same values in another order are equal; the same for printed lines."""
    call_seconds: Annotated[float, Field(gt=0, le=60)] = 0.5
    """CPU seconds of one call. A call that takes longer fails."""
    program_seconds: Annotated[float, Field(gt=0, le=600)] = 3.0
    """CPU seconds of one program on all inputs. Its remaining calls then fail."""
    test_seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    """CPU seconds of one program on its tests, in an evaluation."""
    memory_mib: Annotated[int, Field(ge=64)] = 1024
    """Memory of one program, in MiB."""
    group_seconds: Annotated[float, Field(gt=0)] = 300.0
    """Seconds that a group may take. Programs that have not started by then have no answer."""
    sandbox: Confinement = "bubblewrap"
    """What confines programs: `bubblewrap`; or `container`, only limits and a filter of system calls, under which
    programs can read all files that the run can read."""

    def check_machine(self) -> None:
        """Run a program in the sandbox."""
        run_all([self.job("", "script", "", ("",), self.call_seconds)], self.sandbox, self.group_seconds)

    def check_row(self, row: Row) -> None:
        """Raises DataError if there are no inputs to compare programs on, so that all answers would be missing."""
        task = read_task(row)
        known = task.parameters is not None or shown_calls(task) or shows_call(task)
        if unread_examples(task):
            lacks = f"has examples that cannot be read as calls of {task.entry!r}, such as {task.given[0]!r:.60}"
        elif task.way == "calls" and not known:
            lacks = f"shows neither a call of {task.entry!r} nor its parameters, so there is nothing to run programs on"
        elif task.way == "script" and _READS.search(row[PROBLEM]) and not shown_texts(task):
            lacks = "speaks of an input and shows none, so programs would be run on an empty input"
        else:
            return
        raise DataError(
            f"The prompt {row[PROBLEM][:60]!r} {lacks}. Give inputs in the column `examples`: calls with literal "
            'arguments, such as "f(3)", or what a script reads, such as "1 2" (`""` if it reads nothing).'
        )

    def extract(self, response: str, row: Row) -> str | None:
        return program_of(response, read_task(row))

    def key(self, answer: str, row: Row) -> str:
        """A digest of the program's outcomes on all inputs. `classes` compares only the inputs that suit the group."""
        (outcomes,) = self._outcomes([answer], read_task(row))
        return outcome.digest("\n".join(outcomes or [DIED]))

    def classes(self, answers: Sequence[str | None], row: Row) -> list[int | None]:
        """Programs are equal if they agree on every input on which at most half of the group's programs fail.

        A program that fails on all these inputs counts as a missing answer.
        """
        task = read_task(row)
        programs = list(dict.fromkeys(answer for answer in answers if answer is not None))
        ran = dict(zip(programs, self._outcomes(programs, task), strict=True))
        found = signatures([None if answer is None else ran[answer] for answer in answers])
        return number_classes(found)

    def is_right(self, answer: str | None, gold: str, row: Row) -> bool:
        """Whether the program passes: HumanEval's `check`, asserts, or a JSON list of `{input, output}` for scripts.

        Raises DataError if a script's gold is no such list.
        """
        if answer is None:
            return False
        task = read_task(row)
        if task.way == "script":
            return self._prints(answer, _expected(gold))
        job = self.job(answer, "tests", task.entry, (_asserts(gold),), self.test_seconds)
        (outcomes,) = run_all([job], self.sandbox, self.group_seconds)
        return outcomes == (PASSED,)

    def answer_of_gold(self, gold: str, row: Row) -> str | None:
        return None

    def _prints(self, answer: str, expected: Sequence[Expected]) -> bool:
        jobs = [self.job(answer, "script", "", (each.input,), self.test_seconds) for each in expected]
        wanted = [(RETURNED + outcome.digest(outcome.printed(each.output, self.ignore_order)),) for each in expected]
        return run_all(jobs, self.sandbox, self.group_seconds) == wanted

    def _outcomes(self, programs: Sequence[str], task: Task) -> list[Outcomes | None]:
        """The outcome of each program on each input; None for a program that the group's time limit left out."""
        inputs = inputs_for(task, self.inputs)
        if not inputs:
            return [None for _ in programs]
        if task.way == "calls":
            return self._ran([self.job(each, "calls", task.entry, inputs, self.program_seconds) for each in programs])
        # A script is run separately on each input, as programming judges do.
        seconds = min(self.call_seconds, self.program_seconds)
        jobs = [self.job(each, "script", "", (text,), seconds) for each in programs for text in inputs]
        ran = self._ran(jobs)
        rows = [ran[start : start + len(inputs)] for start in range(0, len(ran), len(inputs))]
        return [_script_outcomes(row) for row in rows]

    def _ran(self, jobs: Sequence[Job]) -> list[Outcomes | None]:
        """The outcomes of each job. Known ones are not run again: classes and keys need the same programs."""
        found: dict[Job, Outcomes | None] = {job: known for job in jobs if (known := _KNOWN.get(job)) is not None}
        new = [job for job in dict.fromkeys(jobs) if job not in found]
        ran = dict(zip(new, run_all(new, self.sandbox, self.group_seconds), strict=True))
        if len(_KNOWN) > MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN.update({job: outcomes for job, outcomes in ran.items() if outcomes is not None})
        return [(found | ran)[job] for job in jobs]

    def job(self, program: str, way: Way, entry: str, inputs: tuple[str, ...], seconds: float) -> Job:
        """The job of a program for the sandbox."""
        return Job(
            source=program,
            way=way,
            entry=entry,
            inputs=inputs,
            call_seconds=self.call_seconds,
            program_seconds=seconds,
            memory_bytes=self.memory_mib << 20,
            output_bytes=1 << 20,
            ignore_order=self.ignore_order,
        )


def _script_outcomes(runs: Sequence[Outcomes | None]) -> Outcomes | None:
    """The outcomes of a script's runs. A script that prints nothing on any input has not answered."""
    outcomes = [run[0] for run in runs if run is not None]
    if len(outcomes) < len(runs):
        return None
    has_printed = any(returns(each) and each != RETURNED_NOTHING for each in outcomes)
    return tuple(outcomes) if has_printed else (DIED,) * len(outcomes)


def _asserts(gold: str) -> str:
    """Tests as one text; a JSON list, such as MBPP's `test_list`, has one line each."""
    try:
        return "\n".join(_LINES.validate_json(gold))
    except ValidationError:
        return gold


def _expected(gold: str) -> list[Expected]:
    try:
        return _EXPECTED.validate_json(gold)
    except ValidationError:
        raise DataError(
            f"The prompt asks for a script, and its gold {gold[:60]!r} is not a list of inputs and outputs. Write it "
            'as [{"input": "1 2", "output": "3"}], or name the function in the column `entry_point`.'
        ) from None


def returns(outcome: str) -> bool:
    """Whether the program returned or printed something on this input."""
    return outcome.startswith(RETURNED)


def comparable(programs: Sequence[Outcomes | None]) -> list[int]:
    """The places of the inputs on which at most half of the group's programs fail.

    An input on which most programs fail is probably not allowed by the prompt. Programs that fail everywhere, or were
    not run (None), do not count.
    """
    counted = [outcomes for outcomes in programs if outcomes and any(map(returns, outcomes))]
    if not counted:
        return []
    columns = zip(*counted, strict=True)
    return [place for place, column in enumerate(columns) if 2 * sum(map(returns, column)) >= len(column)]


def signatures(programs: Sequence[Outcomes | None]) -> list[Outcomes | None]:
    """Each program's outcomes on comparable inputs, with all failures alike; None if it fails on all of them.

    The inputs are the same for the whole group, so equality of signatures is reflexive, symmetric and transitive.
    """
    places = comparable(programs)
    restricted = [outcomes and tuple(outcomes[place] for place in places) for outcomes in programs]
    return [_failures_alike(outcomes) if outcomes and any(map(returns, outcomes)) else None for outcomes in restricted]


def _failures_alike(outcomes: Outcomes) -> Outcomes:
    return tuple(outcome if returns(outcome) else FAILED for outcome in outcomes)
