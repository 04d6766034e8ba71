"""The kind `sql`: what is read, which queries are equal, what a query may do, and rows in Spider's shape."""

import hashlib
import re
import sqlite3
import time
from collections import Counter

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from restrain_openrlhf.answers.kind import parse_kind
from restrain_openrlhf.answers.kinds import sql as sql_kind
from restrain_openrlhf.answers.kinds import sql_database as database
from restrain_openrlhf.answers.kinds.sql import Sql
from restrain_openrlhf.answers.kinds.sql_database import Queries
from restrain_openrlhf.answers.kinds.sql_statement import orders_rows
from restrain_openrlhf.errors import DataError, GraderError
from tests.answers.kinds.shapes import keys_elsewhere
from tests.conftest import ROOT
from tests.docs import printed

# Spider's concert_singer, cut down: its columns and types, some of its rows.
SINGERS = """
CREATE TABLE "singer" ("Singer_ID" int, "Name" text, "Country" text, "Age" int, "Net" real, PRIMARY KEY ("Singer_ID"));
INSERT INTO "singer" VALUES (1,'Joe Sharp','Netherlands',52,1.5);
INSERT INTO "singer" VALUES (2,'Timbaland','United States',32,2.25);
INSERT INTO "singer" VALUES (3,'Justin Brown','France',29,0.1);
INSERT INTO "singer" VALUES (4,'Rose White','France',41,0.2);
INSERT INTO "singer" VALUES (5,'John Nizinik','France',43,NULL);
INSERT INTO "singer" VALUES (6,'Tribal King','France',25,1e3);
"""
ROW = {"problem": "Which singers are there?", "schema": SINGERS}
KIND = Sql()
ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x)"


def fenced(query):
    return f"Here it is.\n```sql\n{query}\n```\n"


def class_of_pair(first, second):
    answers = [KIND.extract(fenced(query), ROW) for query in (first, second)]
    assert None not in answers
    one, other = KIND.classes(answers, ROW)
    return one == other


@pytest.mark.parametrize(
    ("response", "query"),
    [
        ("```sql\nSELECT Age FROM singer;\n```", "SELECT Age FROM singer"),
        ("```sql\nSELECT 1\n```\nBetter:\n```SQL\nSELECT 2\n```\nIt gives\n```\n2\n```", "SELECT 2"),
        ("```sql\n-- the oldest\nSELECT max(Age) FROM singer", "-- the oldest\nSELECT max(Age) FROM singer"),
        ("The query is ```sql SELECT 1```.", "SELECT 1"),
        ("```python\nprint('SELECT 1')\n```\nAnswer: SELECT 2;", "SELECT 2"),
        ("The answer is: SELECT Name FROM singer; It is quick.", "SELECT Name FROM singer"),
        ("Use `SELECT Age FROM singer` here.", "SELECT Age FROM singer"),
        ("**SQL:** SELECT 1\nUNION\nSELECT 2", "SELECT 1\nUNION\nSELECT 2"),
        ("SELECT a FROM (\nSELECT Age AS a FROM singer\n)", "SELECT a FROM (\nSELECT Age AS a FROM singer\n)"),
        ("SELECT Name FROM singer WHERE Name = 'a;b'", "SELECT Name FROM singer WHERE Name = 'a;b'"),
        ("SELECT 1; SELECT 2", "SELECT 2"),
        ("SELECT 1\n\nSelect the first one, with care, as it isn't slow.", "SELECT 1"),
        ("WITH x AS (SELECT 1 AS n) SELECT n FROM x", "WITH x AS (SELECT 1 AS n) SELECT n FROM x"),
        ("We start with the table singer.", None),
        ("", None),
        (fenced("SELECT 1; SELECT 2"), None),
        (fenced("SELECT Nam FROM singer"), None),
        (fenced("-- nothing"), None),
        (fenced("EXPLAIN SELECT 1"), None),
        (fenced("VALUES (1)"), None),
        (fenced("SELECT 1" + " " * 30_000 + "+ 1"), None),
    ],
)
def test_the_last_query_that_runs_is_the_answer(response, query):
    assert KIND.extract(response, ROW) == query


@pytest.mark.parametrize(
    ("query", "ordered"),
    [
        ("select a from t order\n  by a", True),
        ("SELECT a FROM t ORDER /* a */ BY a", True),
        ("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1", True),
        ("SELECT row_number() OVER (ORDER BY a) FROM t", False),
        ("SELECT a FROM t WHERE b = 'x ORDER BY y'", False),
        ("SELECT a FROM t -- ORDER BY a", False),
        ('SELECT "order", by FROM t', False),
        ("SELECT a FROM t WHERE b = ')' AND c IN (SELECT c FROM u ORDER BY c)", False),
    ],
)
def test_order_counts_where_the_outermost_select_has_order_by(query, ordered):
    assert orders_rows(query) is ordered


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ("SELECT Name FROM singer ORDER BY Age", "SELECT Name FROM singer ORDER BY Age + 1", True),
        ("SELECT 1.0 / 3", "SELECT 0.3333333", True),
        ("SELECT 1.0 / 3", "SELECT 0.3333", False),
        ("SELECT 1234567", "SELECT 1234568", False),
        ("SELECT 1234567", "SELECT 1234567.0000001", True),
        ("SELECT 9007199254740993", "SELECT 9007199254740992", False),
        ("SELECT 0", "SELECT -0.0", True),
        ("SELECT NULL", "SELECT ''", False),
        ("SELECT x'41'", "SELECT 'A'", False),
        ("SELECT Age FROM singer WHERE Age > 99", "SELECT Age + 1 FROM singer WHERE Age > 98", True),
        ("SELECT Age FROM singer WHERE Age > 99", "SELECT Age, Age FROM singer WHERE Age > 99", False),
    ],
)
def test_queries_are_equal_where_their_rows_are(first, second, equal):
    assert class_of_pair(first, second) is equal


@pytest.mark.parametrize(
    "query",
    [
        "WITH x AS (SELECT 1) DELETE FROM singer",
        "SELECT load_extension('x')",
        "SELECT random()",
        "SELECT hex(randomblob(4))",
        "SELECT * FROM pragma_table_info('singer')",
        "SELECT readfile('/etc/passwd')",
        # Queries without an end, and values without a bound.
        f"{ENDLESS} SELECT count(*) FROM x",
        f"{ENDLESS} SELECT n FROM x ORDER BY n DESC",
        "SELECT length(zeroblob(1000000000))",
        f"SELECT count(*) FROM {', '.join(f'singer s{place}' for place in range(20))}",
        f"SELECT {'(' * 5000}1{')' * 5000}",
        f"SELECT {'1 + ' * 4000}1",
    ],
)
def test_what_is_no_safe_and_bounded_reading_is_no_answer_within_seconds(query):
    start = time.monotonic()
    assert KIND.extract(fenced(query), ROW) is None
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    "value",
    [
        "printf('%.*c', 1000000000, 'x')",
        f"printf('%.*c', 900000, 'a') LIKE '{'%a' * 499}b'",
        f"printf('%.*c', 900000, 'a') GLOB '{'*[a-z]' * 150}b'",
        "json_extract(printf('%.*c', 900000, '['), '$')",
    ],
)
def test_one_long_instruction_ends_and_the_next_query_runs(value):
    start = time.monotonic()
    Sql(seconds=1).extract(fenced(f"SELECT {value} FROM singer"), ROW)
    assert time.monotonic() - start < 60
    assert KIND.extract(fenced("SELECT 17"), ROW) == "SELECT 17"


def test_a_query_ends_by_its_processor_time():
    slow = "instr(printf('%.*c', 900000, 'a'), printf('%.*c', 400000, 'a') || s.Age)"
    start = time.monotonic()
    assert Sql(seconds=1).extract(fenced(f"SELECT {slow} FROM singer s, singer t, singer u"), ROW) is None
    assert time.monotonic() - start < database.PATIENCE_SECONDS / 2
    assert KIND.extract(fenced("SELECT 16"), ROW) == "SELECT 16"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("raise SystemExit(3)", "ended with status 3"),
        ("print('{}', flush=True); input(); print('{\"refused\": \"no table\"}')", "no table"),
        ("print('{}', flush=True); input()", "ended with status 0"),
    ],
)
def test_a_process_that_runs_nothing_is_said(monkeypatch, tmp_path, script, said):
    """Every query would be missing."""
    monkeypatch.setattr(sql_kind, "QUERIES", Queries())
    (tmp_path / "worker.py").write_text(script)
    monkeypatch.setattr(database.sql_worker, "__file__", str(tmp_path / "worker.py"))
    with pytest.raises(GraderError, match=said):
        KIND.extract(fenced("SELECT 20"), ROW)


def test_now_stands_still():
    same = "SELECT date('now'), datetime('NOW'), CURRENT_TIMESTAMP, strftime('%Y'), CURRENT_DATE, date(), time('now')"
    words = "SELECT '2025-01-01', '2025-01-01 12:00:00', '2025-01-01 12:00:00', '2025', '2025-01-01', '2025-01-01', "
    assert class_of_pair(same, f"{words}'12:00:00'")
    assert class_of_pair("SELECT date('2024-03-01', '-1 day')", "SELECT '2024-02-29'")


PAGE = printed.section((ROOT / "docs" / "concepts" / "kinds.md").read_text(encoding="utf-8"), "sql")
EXAMPLES = re.findall(r"^\| `(SELECT[^`]*)` \| `(SELECT[^`]*)` \| (yes|no) \|", PAGE, re.MULTILINE)
assert len(EXAMPLES) > 8


@pytest.mark.parametrize(("first", "second", "equal"), EXAMPLES)
def test_the_pages_examples_are_true(first, second, equal):
    row = {"problem": "p", "schema": printed.fenced(PAGE, "sql")[0]}
    one, other = KIND.classes([KIND.extract(fenced(query), row) for query in (first, second)], row)
    assert None not in (one, other)
    assert (one == other) is (equal == "yes")


# --- rows and gold, in Spider's shape: dev.json has question, query and db_id, database/ a folder and file a db_id.


@pytest.fixture(scope="module")
def spider(tmp_path_factory):
    """A folder as Spider's `database/`, with a file that SQLite itself wrote."""
    folder = tmp_path_factory.mktemp("database")
    (folder / "concert_singer").mkdir()
    with sqlite3.connect(folder / "concert_singer" / "concert_singer.sqlite") as connection:
        connection.executescript(SINGERS)
        connection.execute("INSERT INTO singer VALUES (7, CAST(x'4af6' AS TEXT), 'Nowhere', 99, 1)")
    connection.close()
    return folder


EXAMPLE = {
    "db_id": "concert_singer",
    "query": "SELECT name ,  country FROM singer ORDER BY age DESC",
    "question": "What is the name and country of singers, from the oldest to the youngest?",
}


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("SELECT Name, Country FROM singer ORDER BY Age DESC", True),
        ("SELECT Name, Country FROM singer ORDER BY -Age", True),
        ("SELECT Name, Country FROM singer ORDER BY Age", False),
        ("SELECT Country, Name FROM singer ORDER BY Age DESC", False),
        ("SELECT Name FROM nothing", False),
        (None, False),
    ],
)
def test_a_row_of_spiders_is_graded_by_its_gold_querys_rows(spider, answer, right):
    kind = parse_kind({"name": "sql", "databases": str(spider)})
    row = kind.row(EXAMPLE["question"], EXAMPLE)
    assert row.keys() == {"problem", "db_id", "database_digest"}
    assert kind.is_right(answer, EXAMPLE["query"], row) is right


def test_without_an_order_in_the_gold_query_any_order_is_right(spider):
    row = {"problem": "p", "database": "concert_singer/concert_singer.sqlite"}
    kind = Sql(databases=str(spider))
    assert kind.is_right("SELECT Name FROM singer ORDER BY Age", "select name from singer;", row)
    with pytest.raises(DataError, match="gold query 'SELECT nam FROM singer'"):
        kind.is_right("SELECT 1", "SELECT nam FROM singer", row)


def test_a_file_is_only_read(spider):
    file = spider / "concert_singer" / "concert_singer.sqlite"
    row = {"problem": "p", "database": str(file)}
    before = hashlib.sha256(file.read_bytes()).hexdigest(), sorted(spider.rglob("*"))
    for query in (
        "SELECT * FROM singer",
        "WITH x AS (SELECT 1) UPDATE singer SET Age = 1",
        f"WITH x AS (SELECT 1) INSERT INTO singer SELECT * FROM x; ATTACH '{spider}/b.sqlite' AS b; SELECT 1",
        f"SELECT writefile('{spider}/c', 'x')",
    ):
        KIND.extract(fenced(query), row)
    assert (hashlib.sha256(file.read_bytes()).hexdigest(), sorted(spider.rglob("*"))) == before


def test_a_file_that_has_changed_is_read_again(tmp_path):
    row = {"problem": "p", "database": str(tmp_path / "a.sqlite")}
    keys = []
    for value in ("one", "another"):
        with sqlite3.connect(tmp_path / "a.sqlite") as connection:
            connection.executescript(f"DROP TABLE IF EXISTS t; CREATE TABLE t (a); INSERT INTO t VALUES ('{value}')")
        connection.close()
        keys.append(KIND.key("SELECT a FROM t", row))
        time.sleep(0.02)
    assert keys[0] != keys[1]
    assert keys[1] == KIND.key("SELECT 'another'", row)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "it has none"),
        ({"database": "a", "schema": "b"}, "it has `database` and `schema`"),
        ({"database": "no/such.sqlite"}, "no such SQLite file"),
        ({"database": "\0"}, "no such SQLite file"),
        ({"database": __file__}, "file is not a database"),
        ({"schema": "CREATE TABLE t ("}, "incomplete input"),
        ({"schema": "ATTACH 'x.sqlite' AS x"}, "too many attached"),
        ({"schema": 3}, "has 3 in its column 'schema'"),
    ],
)
def test_a_row_without_a_database_is_said(columns, said):
    with pytest.raises(DataError, match=said):
        KIND.extract(fenced("SELECT 1"), {"problem": "p", **columns})


def test_an_empty_result_may_be_left_out():
    query = "SELECT Name FROM singer WHERE Age > 99"
    assert KIND.extract(fenced(query), ROW) == query
    assert Sql(empty=False).extract(fenced(query), ROW) is None
    assert Sql(empty=False).extract(fenced("SELECT Name FROM singer"), ROW) == "SELECT Name FROM singer"
    assert Sql(rows=5).extract(fenced("SELECT Name FROM singer"), ROW) is None


def test_a_query_ends_by_its_steps_whatever_the_computer():
    query = fenced(f"{ENDLESS} SELECT count(*) FROM (SELECT n FROM x LIMIT 50000)")
    assert KIND.extract(query, ROW) is not None
    assert Sql(steps=100_000, databases="here").extract(query, ROW) is None
    assert Sql(databases="here").identity == Sql().identity == "sql 2"


# --- properties; the oracle runs the queries itself and counts Python's rows.

PARTS = {
    "columns": ["Name", "Age", "Age, Name", "Country", "DISTINCT Country", "count(*)", "max(Age)", "Age * 1.0"],
    "conditions": ["", " WHERE Age > 30", " WHERE NOT Age <= 30", " WHERE Country = 'France'", " WHERE Age > 99"],
    "orders": ["", " ORDER BY Age", " ORDER BY Age DESC", " ORDER BY 1", " ORDER BY Singer_ID LIMIT 1"],
}
queries = st.builds(
    "SELECT {} FROM singer{}{}".format, *(st.sampled_from(PARTS[part]) for part in ("columns", "conditions", "orders"))
)
anything = st.text(st.characters(), max_size=60)


def rows_of(query):
    with sqlite3.connect(":memory:") as connection:
        connection.executescript(SINGERS)
        cursor = connection.execute(query)
        return len(cursor.description), cursor.fetchall()


def same_rows(first, second):
    """By Python's own comparison of rows, where 25 == 25.0."""
    (columns, left), (others, right) = rows_of(first), rows_of(second)
    ordered = ["ORDER BY" in query and len(set(rows)) > 1 for query, rows in ((first, left), (second, right))]
    return (
        columns == others
        and ordered[0] == ordered[1]
        and (left == right if ordered[0] else Counter(left) == Counter(right))
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(queries, min_size=1, max_size=6), st.randoms())
def test_classes_are_those_of_the_rows_in_any_order_of_the_rollouts(group, rng):
    answers = [None, *(KIND.extract(fenced(query), ROW) for query in group)]
    found = KIND.classes(answers, ROW)
    assert found[0] is None
    for one, first in zip(found[1:], group, strict=True):
        for other, second in zip(found[1:], group, strict=True):
            assert (one == other) is same_rows(first, second), (first, second)
    places = list(range(len(answers)))
    rng.shuffle(places)
    moved = KIND.classes([answers[place] for place in places], ROW)
    assert len(set(zip(moved, (found[place] for place in places), strict=True))) == len(set(found))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example("\ud800")
@example(fenced("SELECT '\ud800'"))
@example(fenced("SELECT '\0'"))
@given(st.one_of(anything, anything.map(fenced), anything.map("SELECT {}".format), anything.map("SELECT '{}'".format)))
def test_any_text_is_read(text):
    answer = KIND.extract(text, ROW)
    assert answer is None or KIND.key(answer, ROW).startswith(("rows ", "in order "))
    assert KIND.key(text, ROW) == KIND.key(text, ROW)


@pytest.mark.parametrize(
    "piece",
    ["SELECT ", "SELECT\n\n", "```sql\n", "``` ", "--\n", "WITH a (", "WITH a AS (SELECT\n", "> ", "\n \n",
     "SELECT '';", *"'\"`;: \t\na", "/*", "((", "`SELECT "],
)  # fmt: skip
def test_a_megabyte_of_anything_is_read_within_a_second(piece):
    text = piece * ((1 << 20) // len(piece))
    start = time.process_time()
    KIND.extract(f"{text}SELECT", ROW)
    assert time.process_time() - start < 2


def test_keys_are_the_same_in_another_process():
    query = "SELECT Country, avg(Age) FROM singer GROUP BY Country ORDER BY 2"
    assert keys_elsewhere(KIND, [query], ROW) == [KIND.key(query, ROW)]
