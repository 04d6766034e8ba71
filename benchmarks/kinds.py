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
            table.add_row(name, what, f"{seconds:.2f}")
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


def sql() -> Rows:
    """A table of 1,000 rows; four different queries a group, one of them wrong."""
    from restrain_openrlhf.answers.kinds.sql import Sql
    from restrain_openrlhf.answers.kinds.sql.database import QUERIES

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
            "column `schema`": median_seconds(lambda: voted(Sql(), groups), QUERIES.close, QUERIES.close),
            "column `database`": median_seconds(lambda: voted(Sql(), in_file), QUERIES.close, QUERIES.close),
        }
        voted(Sql(), in_file)
        return {**found, "known results": median_seconds(lambda: voted(Sql(), in_file))}


def same_letters(answers: list[str], row: dict[str, object]) -> list[int]:
    """A judge that costs nothing."""
    folded = sorted({answer.casefold() for answer in answers})
    return [folded.index(answer.casefold()) for answer in answers]


def judge() -> Rows:
    """What the kind itself takes; a judge's own time comes on top, once for each group."""
    from restrain_openrlhf.answers.kinds.judge import Judge
    from restrain_openrlhf.answers.kinds.judge.kind import _verdicts

    forms = ("Paris", "PARIS", "Rome", "The Hague")
    groups = [
        ({"problem": str(place)}, [f"It is a city.\nAnswer: {forms[n % 4]} {place}" for n in range(N)])
        for place in range(GROUPS)
    ]
    kind = Judge(callable=f"{__name__}:same_letters")
    return {"a function that takes no time": median_seconds(lambda: voted(kind, groups), _verdicts.cache_clear)}


def embedding() -> Rows:
    """Random weights in the shape of all-MiniLM-L6-v2; four different texts of about ten words a group."""
    from transformers import BertConfig, BertModel, BertTokenizer

    from restrain_openrlhf.answers.kinds.embedding import Embedding
    from restrain_openrlhf.answers.kinds.embedding import encoder as encoders

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
        encoder = encoders.encoder(folder, None)
        seconds = median_seconds(lambda: voted(kind, groups), encoder._known.clear)
        again = median_seconds(lambda: voted(kind, groups))
        return {"4 different texts a group (from 32 groups)": seconds * 32, "known texts": again * 32}


MEASURED: Mapping[str, Callable[[], Rows]] = {"sql": sql, "judge": judge, "embedding": embedding}

if __name__ == "__main__":
    main()
