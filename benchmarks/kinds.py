"""What reading and comparing 16,384 answers takes, 1,024 groups of 16, by kind of answer.

A function a kind, each of which returns rows of what was measured and its seconds of processor time, which depend
little on what else the machine does. Name kinds to measure those alone.
"""

import argparse
import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from restrain_openrlhf.answers.kind import AnswerKind, Row

GROUPS, N = 1024, 16
REPEATS = 3
Rows = Mapping[str, float]


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser()
    options.add_argument("kinds", nargs="*", choices=[[], *MEASURED], help="all, if none is named")
    chosen = options.parse_args().kinds or list(MEASURED)
    table = Table("kind", "what", "processor seconds", title=f"{GROUPS} x {N} answers")
    for name in chosen:
        for what, seconds in MEASURED[name]().items():
            table.add_row(name, what, f"{seconds:.4f}" if seconds < 0.1 else f"{seconds:.2f}")
    Console().print(table)


def nothing() -> None:
    """Nothing."""


def median_seconds(
    work: Callable[[], object], before: Callable[[], object] = nothing, after: Callable[[], object] = nothing
) -> float:
    """Processor seconds of REPEATS runs, those of processes that `after` ends included; `before` is not timed."""
    times = []
    for _ in range(REPEATS):
        before()
        start = processor_seconds()
        work()
        after()
        times.append(processor_seconds() - start)
    return sorted(times)[REPEATS // 2]


def processor_seconds() -> float:
    """Of this process, and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def voted(kind: AnswerKind, groups: Sequence[tuple[Row, Sequence[str]]]) -> None:
    """Each group's answers and classes."""
    for row, responses in groups:
        kind.classes([kind.extract(response, row) for response in responses], row)


TEXT = "Some reasoning about the problem, with a comma, a number such as 12.5, and (in brackets) a remark. " * 12


def short(kind: AnswerKind, rows: Callable[[int], Row], forms: Sequence[str]) -> float:
    """Seconds of groups whose responses are about 1,200 characters long and end in one of the forms of an answer."""
    rng = random.Random(0)
    groups = [
        (rows(place), [TEXT + "\n" + rng.choice(forms).replace("PLACE", str(place)) for _ in range(N)])
        for place in range(GROUPS)
    ]
    return median_seconds(lambda: voted(kind, groups))


GOLDS = (
    *map(str, range(100, 180)),
    r"\frac{3}{7}",
    r"2\sqrt{3}",
    "(1,2)",
    r"x^2+2x+1",
    "[0,5)",
    r"\{1,2,3\}",
    r"\text{east}",
)
HOSTILE = (r"9^{9^{9^9}}", "99999999!", r"\sum_{k=1}^{10^9} k", "(((9!)!)!)", "{" * 2000, "open('x','w')", "9" * 20_000)


def written(rng: random.Random, answer: str) -> str:
    """Gold in one of several forms, or a slip: about half of each."""
    forms = (answer, f" {answer} ", answer.replace("\\frac", "\\dfrac"), answer.replace(" ", ""), f"{answer}.")
    return rng.choice(forms) if rng.random() < 0.5 else answer.translate({ord("1"): str(rng.randrange(10))}) + "1"


def math() -> Rows:
    """Keys and classes, with one answer in a hundred hostile, and OpenRLHF's grader on the same (from 64 groups)."""
    from openrlhf.utils.math_utils import grade_answer

    from restrain_openrlhf.answers import classes
    from restrain_openrlhf.answers.keys import canonical_key

    rng = random.Random(0)
    groups = [[written(rng, gold) for _ in range(N)] for gold in rng.choices(GOLDS, k=GROUPS)]
    hostile = [
        [f"{rng.choice(HOSTILE)}+{rng.randrange(10**6)}" if rng.random() < 0.01 else answer for answer in group]
        for group in groups
    ]

    def pairwise(group: Sequence[str]) -> None:
        representatives: list[str] = []
        for answer in dict.fromkeys(group):
            if not any(grade_answer(answer, other) for other in representatives):
                representatives.append(answer)

    theirs = median_seconds(lambda: [pairwise(group) for group in groups[:64]])
    return {
        "keys and classes": median_seconds(lambda: list(map(classes, groups)), canonical_key.cache_clear),
        "1 % hostile": median_seconds(lambda: list(map(classes, hostile)), canonical_key.cache_clear),
        "OpenRLHF's grade_answer": theirs * GROUPS / 64,
    }


# A prompt of HumanEval's size. Ten of sixteen real programs of a group differ as texts (docs/concepts/kinds.md).
PROMPT = (
    "from typing import List\n\n\ndef close(numbers: List[float], threshold: float) -> bool:\n"
    '    """Whether any two numbers are closer to each other than the threshold.\n'
    "    >>> close([1.0, 2.0, 3.0], 0.5)\n    False\n    >>> close([1.0, 2.8, 3.0, 4.0, 5.0, 2.0], 0.3)\n    True\n"
    '    """\n'
)
BODY = """
    for place, one in enumerate(numbers):
        for other in numbers[place + 1:]:
            if abs(one - other) < threshold:
                return True
    return False  # {}
"""
DISTINCT = 10


def code() -> Rows:
    """A program on 30 inputs, and all that a step has of them; the sandbox's start is left out."""
    from restrain_openrlhf.answers.kinds.code import Code
    from restrain_openrlhf.answers.kinds.code_inputs import inputs_for
    from restrain_openrlhf.answers.kinds.code_task import read_task
    from restrain_openrlhf.machine.sandbox.pool import Sandbox

    kind, row = Code(sandbox="container"), {"problem": PROMPT}
    bodies = [BODY.format(number) for number in range(GROUPS // 4)]
    task = read_task(row)
    inputs, programs = inputs_for(task, kind.inputs), [str(kind.extract(body, row)) for body in bodies]

    def run(count: int) -> float:
        start, box = processor_seconds(), Sandbox("container")
        for program in programs[:count]:
            box.run(kind.job(program, "calls", task.entry, inputs, kind.program_seconds))
        box.control.close()
        box.process.wait()
        return processor_seconds() - start

    one = (run(len(programs)) - run(1)) / (len(programs) - 1)
    return {
        "extraction (from 256 programs)": median_seconds(lambda: [kind.extract(body, row) for body in bodies]) * 4 * N,
        "one program on its inputs": one,
        f"{DISTINCT} of {N} distinct": one * GROUPS * DISTINCT,
    }


def choice() -> Rows:
    """Ten options a group, chosen by letter and by text."""
    from restrain_openrlhf.answers.kinds.choice import Choice

    options = [f"option number {place}" for place in range(10)]
    forms = (
        "The answer is (B).",
        "\\boxed{C}",
        "option number 3",
        "D. option number 3",
        "Answer: option number 4",
        "K",
    )
    return {
        "ten options": short(Choice(), lambda place: {"problem": str(place), "options": options}, forms),
        "no options": short(Choice(), lambda place: {"problem": str(place)}, forms),
    }


def text() -> Rows:
    """Names, in a tag, after a marker and on the last line."""
    from restrain_openrlhf.answers.kinds.text import Text

    forms = (
        "<answer>J. K. Rowling PLACE</answer>",
        "The answer is JK Rowling PLACE.",
        "The Beatles",
        "\\boxed{Zürich}",
    )
    aliases = ["J. K. Rowling", "Rowling", "Joanne Rowling"]
    return {
        "no aliases": short(Text(), lambda place: {"problem": str(place)}, forms),
        "three aliases": short(Text(), lambda place: {"problem": str(place), "aliases": aliases}, forms),
    }


def number() -> Rows:
    """Whole numbers, powers of ten and fractions, without a unit and in three of them."""
    from restrain_openrlhf.answers.kinds.number import Number

    forms = ("The answer is PLACE,500 m.", "\\boxed{PLACE.5\\times 10^{3}}", "It is PLACE/3 km", "PLACE.5001 km")
    found = {"no unit": short(Number(), lambda place: {"problem": str(place)}, forms)}
    try:
        import pint  # noqa: F401
    except ImportError:
        return found
    in_unit = short(Number(), lambda place: {"problem": str(place), "unit": ("km", "m", "mile")[place % 3]}, forms)
    return {**found, "in a unit": in_unit}


def json() -> Rows:
    """Objects of six keys, fenced and bare."""
    from restrain_openrlhf.answers.kinds.json_value import JsonValue

    value = '{"name": "n PLACE", "age": 1.0, "tags": ["a", "b"], "at": {"x": 1e2, "y": -1}, "ok": true, "none": null}'
    forms = (f"```json\n{value}\n```", value, value.replace("1e2", "100"), value.replace("true", "tru"))
    return {"six keys": short(JsonValue(), lambda place: {"problem": str(place)}, forms)}


def sql() -> Rows:
    """A table of 1,000 rows; four different queries a group, one of them wrong."""
    from restrain_openrlhf.answers.kinds import sql as kind
    from restrain_openrlhf.answers.kinds.sql_database import Queries

    def forget() -> None:
        kind.QUERIES = Queries()

    inserts = ",".join(f"({place}, 'singer {place % 97}', {place % 60 + 18})" for place in range(1000))
    script = f"CREATE TABLE singer (id INT, name TEXT, age INT); INSERT INTO singer VALUES {inserts};"
    rng, groups = random.Random(0), []
    for place in range(GROUPS):
        forms = [
            f"SELECT name, count(*) FROM singer WHERE age > {place % 70} AND {place} = {place} GROUP BY name",
            f"SELECT name, count(*) AS n FROM singer WHERE NOT age <= {place % 70} AND {place} GROUP BY 1",
            f"SELECT name, count(*) FROM singer WHERE age >= {place % 70} AND {place} = {place} GROUP BY name",
            f"SELECT nam FROM singer WHERE id = {place}",
        ]
        responses = [f"I look at the ages.\n```sql\n{rng.choice(forms)};\n```" for _ in range(N)]
        groups.append(({"problem": str(place), "schema": script}, responses))
    with TemporaryDirectory() as folder:
        import sqlite3

        with sqlite3.connect(Path(folder, "a.sqlite")) as connection:
            connection.executescript(script)
        connection.close()
        in_file = [({"problem": "p", "database": f"{folder}/a.sqlite"}, responses) for _, responses in groups]
        found = {
            "column `schema`": median_seconds(lambda: voted(kind.Sql(), groups), forget, forget),
            "column `database`": median_seconds(lambda: voted(kind.Sql(), in_file), forget, forget),
        }
        voted(kind.Sql(), in_file)
        return {**found, "known results": median_seconds(lambda: voted(kind.Sql(), in_file))}


def same_letters(answers: list[str], row: dict[str, object]) -> list[int]:
    """A judge that costs nothing."""
    folded = sorted({answer.casefold() for answer in answers})
    return [folded.index(answer.casefold()) for answer in answers]


def judge() -> Rows:
    """What the kind itself takes; a judge's own time comes on top, once for each group."""
    from restrain_openrlhf.answers.kinds.judge import Judge, _verdict

    forms = ("Paris", "PARIS", "Rome", "The Hague")
    groups = [
        ({"problem": str(place)}, [f"It is a city.\nAnswer: {forms[n % 4]} {place}" for n in range(N)])
        for place in range(GROUPS)
    ]
    kind = Judge(callable=f"{__name__}:same_letters")
    return {"a function that takes no time": median_seconds(lambda: voted(kind, groups), _verdict.cache_clear)}


def embedding() -> Rows:
    """Random weights in the shape of all-MiniLM-L6-v2; four different texts of about ten words a group."""
    from transformers import BertConfig, BertModel, BertTokenizer

    from restrain_openrlhf.answers.kinds.embedding import Embedding, vector_of

    letters = [chr(place) for place in range(97, 123)]
    with TemporaryDirectory() as folder:
        Path(folder, "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]))
        sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
        BertModel(BertConfig(**sizes)).save_pretrained(folder)
        BertTokenizer(f"{folder}/vocab.txt").save_pretrained(folder)
        rng = random.Random(0)
        texts = [[" ".join(rng.choices(letters, k=10)) for _ in range(4)] for _ in range(GROUPS // 32)]
        groups = [({"problem": "p"}, [four[n % 4] for n in range(N)]) for four in texts]
        kind = Embedding(model=folder, threshold=0.8)
        voted(kind, groups[:1])
        seconds = median_seconds(lambda: voted(kind, groups), vector_of.cache_clear)
        again = median_seconds(lambda: voted(kind, groups))
        return {"4 different texts a group (from 32 groups)": seconds * 32, "known texts": again * 32}


MEASURED: Mapping[str, Callable[[], Rows]] = {
    **{"math": math, "code": code, "choice": choice, "text": text, "number": number, "json": json},
    **{"sql": sql, "judge": judge, "embedding": embedding},
}

if __name__ == "__main__":
    main()
