"""The kind of answer `code`: its settings, the jobs of programs in the sandbox, and which programs are equal."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError

from restrain_openrlhf.answers.kind import PROBLEM, AnswerKind, Row, number_classes, register
from restrain_openrlhf.answers.kinds.code_examples import shown_calls, shows_call, unread_examples
from restrain_openrlhf.answers.kinds.code_inputs import inputs_for
from restrain_openrlhf.answers.kinds.code_task import Task, program_of, read_task
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.machine.sandbox import outcome
from restrain_openrlhf.machine.sandbox.pool import DIED, Confinement, run_all
from restrain_openrlhf.machine.sandbox.program import RETURNED, Job

Outcomes = tuple[str, ...]
FAILED = "!"
# Outcomes of recent jobs, which depend on nothing but the job.
MOST_KNOWN = 1 << 12
_KNOWN: dict[Job, Outcomes] = {}
PASSED = RETURNED + outcome.digest("passed")
_LINES = TypeAdapter(list[str])


@register
class Code(AnswerKind):
    """Programs in Python, equal if their functions return the same on the same inputs.

    The inputs come from the prompt: the calls in its examples, others like them, or values of its parameters' types;
    from the row's column `examples` where there is one. Neither tests nor gold are read. Programs run in a sandbox.
    """

    version: ClassVar[str] = "7"
    has_words: ClassVar[bool] = False
    reads: ClassVar[str] = (
        "An answer is the last Python block that defines the function that the prompt leaves open, or the bare rest of "
        "that function."
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
        run_all([self.job("", "tests", "", ("",), self.call_seconds)], self.sandbox, self.group_seconds)

    def check_row(self, row: Row) -> None:
        """Raises DataError if there are no inputs to compare programs on, so that all answers would be missing."""
        task = read_task(row)
        known = task.parameters is not None or shown_calls(task) or shows_call(task)
        if not task.entry:
            lacks = "shows no function to write. Name it in the column `entry_point`"
        elif unread_examples(task):
            lacks = f"has examples that cannot be read as calls of {task.entry!r}, such as {task.given[0]!r:.60}"
        elif not known:
            lacks = f"shows neither a call of {task.entry!r} nor its parameters, so there is nothing to run programs on"
        else:
            return
        raise DataError(
            f"The prompt {row[PROBLEM][:60]!r} {lacks}. Give inputs in the column `examples`: calls with literal "
            'arguments, such as "f(3)".'
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
        """Whether the program passes the tests of gold: HumanEval's `check`, or asserts."""
        if answer is None:
            return False
        task = read_task(row)
        job = self.job(answer, "tests", task.entry, (_asserts(gold),), self.test_seconds)
        (outcomes,) = run_all([job], self.sandbox, self.group_seconds)
        return outcomes == (PASSED,)

    def answer_of_gold(self, gold: str, row: Row) -> str | None:
        return None

    def _outcomes(self, programs: Sequence[str], task: Task) -> list[Outcomes | None]:
        """The outcome of each program on each input; None for a program that the group's time limit left out."""
        inputs = inputs_for(task, self.inputs)
        if not inputs:
            return [None for _ in programs]
        return self._ran([self.job(each, "calls", task.entry, inputs, self.program_seconds) for each in programs])

    def _ran(self, jobs: Sequence[Job]) -> list[Outcomes | None]:
        """The outcomes of each job. Known ones are not run again: classes and keys need the same programs."""
        found: dict[Job, Outcomes | None] = {job: known for job in jobs if (known := _KNOWN.get(job)) is not None}
        new = [job for job in dict.fromkeys(jobs) if job not in found]
        ran = dict(zip(new, run_all(new, self.sandbox, self.group_seconds), strict=True))
        if len(_KNOWN) > MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN.update({job: outcomes for job, outcomes in ran.items() if outcomes is not None})
        return [(found | ran)[job] for job in jobs]

    def job(
        self, program: str, way: Literal["calls", "tests"], entry: str, inputs: tuple[str, ...], seconds: float
    ) -> Job:
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


def _asserts(gold: str) -> str:
    """Tests as one text; a JSON list, such as MBPP's `test_list`, has one line each."""
    try:
        return "\n".join(_LINES.validate_json(gold))
    except ValidationError:
        return gold


def returns(outcome: str) -> bool:
    """Whether the program returned something on this input."""
    return outcome.startswith(RETURNED)


def signatures(programs: Sequence[Outcomes | None]) -> list[Outcomes | None]:
    """Each program's outcomes on comparable inputs, with all failures alike; None if it fails on all of them.

    On a comparable input at most half of the group's programs fail; one on which most fail is probably not allowed by
    the prompt. Programs that fail everywhere, or were not run (None), do not count. These inputs are the same for the
    whole group, so equality of signatures is reflexive, symmetric and transitive.
    """
    alike = [ran and tuple(each if returns(each) else FAILED for each in ran) for ran in programs]
    counted = [ran for ran in alike if ran and any(map(returns, ran))]
    columns = enumerate(zip(*counted, strict=True))
    places = [place for place, column in columns if 2 * sum(map(returns, column)) >= len(column)]
    compared = [ran and tuple(ran[place] for place in places) for ran in alike]
    return [ran if ran and any(map(returns, ran)) else None for ran in compared]
