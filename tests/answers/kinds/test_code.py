"""The kind `code`: what is read, which programs are equal, what passes its tests, and the public data sets' shapes."""

import ast
import json
import re
import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers.kinds import code as code_kind
from restrain_openrlhf.answers.kinds.code import Code, signatures
from restrain_openrlhf.answers.kinds.code_examples import shown_calls
from restrain_openrlhf.answers.kinds.code_inputs import inputs_for
from restrain_openrlhf.answers.kinds.code_task import read_task
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.machine.sandbox.pool import run_all
from tests.answers.kinds.shapes import keys_elsewhere
from tests.conftest import ROOT
from tests.docs.printed import section

# The kernel's filter alone: bubblewrap need not be installed for these, and programs are harmless.
KIND = Code(sandbox="container")

# Some of HumanEval's columns.
HUMANEVAL = {
    "prompt": 'import math\n\n\ndef helper(x):\n    return x + 1\n\n\ndef half(x: int) -> float:\n    """Half of x.\n'
    '    >>> half(3)\n    1.5\n    """\n',
    "entry_point": "half",
    "canonical_solution": "    return x / 2\n",
    "test": "\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate(3) == 1.5\n",
}
ROW = {"problem": HUMANEVAL["prompt"]}
# Some of MBPP's columns; the prompt shows a test.
MBPP = {
    "text": "Write a function to find the shared elements from the given two lists.",
    "code": "def similar_elements(a, b):\n  return tuple(set(a) & set(b))",
    "test_list": ["assert set(similar_elements((3, 4, 5, 6),(5, 7, 4, 10))) == set((4, 5))"],
}
MBPP_ROW = {"problem": f"{MBPP['text']}\nYour code should pass this test:\n{MBPP['test_list'][0]}"}
METHOD = {
    "problem": "Fill in.\n```python\nclass Solution:\n    def twice(self, nums: List[int]) -> List[int]:\n```\n",
    "examples": ["nums = [1, 2]", "[3]"],
}


def fenced(code):
    return f"Here it is:\n```python\n{code}\n```\nIt works."


def define(body):
    return fenced(f"def half(x: int) -> float:\n    {body}")


@pytest.mark.parametrize(
    ("response", "held"),
    [
        (define("return x / 2"), "return x / 2"),
        (define("return x / 2"), "def helper"),
        (define("return 1") + define("return 2"), "return 2"),
        (define("return 1") + fenced("print(half(3))"), "return 1"),
        (define("return 1") + "```text\ndef half(x): 7\n```", "return 1"),
        ("```\ndef half(x):\n    return 5", "return 5"),
        ("def half(x):\n    return 5", "return 5"),
        ("    return x / 2\n\n\nprint(half(1))\n", '    """\n    return x / 2'),
        ("y = x\n    return y / 2", "    y = x\n    return y / 2"),
        ("y = x\nreturn y / 2", "    y = x\n    return y / 2"),
        (fenced("    return x / 2"), "return x / 2"),
        (fenced("from __future__ import annotations\ndef half(x): return 3"), "return 3"),
        (fenced("half = lambda x: x / 2"), "half = lambda"),
        ("I cannot do this.", None),
        (fenced("def other(x):\n    return 1"), None),
        (fenced("def half(x:\n    return"), None),
        ("", None),
    ],
)
def test_what_is_a_program(response, held):
    answer = KIND.extract(response, ROW)
    assert (answer is None) if held is None else held in answer


def equal(one, other, row=ROW):
    """Alone with each other, each program twice, so that no input is lost for a failure of one alone."""
    answers = [KIND.extract(each, row) for each in (one, other)]
    first, second = KIND.classes(answers, row)
    return first == second and first is not None


FUTURE = "from __future__ import (\n    annotations,\n)\ndef half(x): return x / 2"


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ("return x / 2", "return 0.5 * x", True),
        ("return x / 2", "return x // 2", False),
        ("return x / 2", "print('debug')\n    return x / 2", True),
        ("return x / 2", "return math.fsum([x]) / 2", True),
        ("return x / 2", "import time\n    time.sleep(100)\n    return x / 2", True),
        ("return x / 2", "raise ValueError", False),
        ("print(x)", "print(x, '')", True),
        ("print(x)", "print(x + 1)", False),
        ("return lambda: 1", "return lambda: 1", False),
        ("import random\n    return random.random()", "import random\n    return random.random()  # again", True),
        ("return list({'a', 'b', 'c'})", "return list({'a', 'b', 'c'})  # again", True),
        ("import datetime as d\n    return d.date(9, 1, x)", "import datetime as e\n    return e.date(9, 1, x)", True),
        ("import datetime as d\n    return d.date(9, 1, x)", "import datetime as e\n    return e.date(9, x, 1)", False),
    ],
)
def test_which_programs_are_equal(one, other, is_equal):
    assert equal(define(one), define(other)) == is_equal


def test_a_program_that_imports_from_the_future_runs_under_the_prompts_helpers():
    """Such imports must come before all others, the prompt's own among them."""
    assert equal(fenced(FUTURE), define("return x / 2"))


PAGE = section((ROOT / "docs" / "concepts" / "kinds.md").read_text(encoding="utf-8"), "code")


@pytest.mark.parametrize(
    ("one", "other", "is_equal"), re.findall(r"^\| `(.+?)` \| `(.+?)` \| (yes|no) \|$", PAGE, re.MULTILINE)
)
def test_the_pages_examples(one, other, is_equal):
    row = {"problem": 'def f(x: int):\n    """f(3) f(4)"""\n'}
    assert equal(*(fenced(f"def f(x):\n    {each}") for each in (one, other)), row) is (is_equal == "yes")


TURN, BOTH, ONE = "def f(rows: list): ...", "def f(a: int, b: int): ...", "def f(x): ..."
HALVES = ["return x / 2", "raise ValueError", "return x / 2  #", "while True: pass", "return nothing"]
LISTS = ["return [a, b]", "return [b, a]", "return [a, a]"]
ON_NONE = ["return x + 1", "return 1 + x", "return 2", "return 2 if x else None + 1"]


@pytest.mark.parametrize(
    ("problem", "examples", "changed", "bodies", "classes"),
    [
        pytest.param(TURN, ["[[1, 2, 3]]"], {}, ["rows.reverse()", "rows[:] = rows[::-1]", "rows.sort()"], [0, 0, 1],
                     id="changed arguments count where nothing is returned"),
        pytest.param(TURN, ["[[1, 2, 3]]"], {}, ["rows.sort()", "rows.sort(); return 1", "return 1"], [0, 1, 1],
                     id="and only there"),
        pytest.param(BOTH, None, {}, LISTS, [0, 1, 2], id="order"),
        pytest.param(BOTH, None, {"ignore_order": True}, LISTS, [0, 0, 1], id="order may be ignored"),
        pytest.param(ONE, ["1", "5"], {}, HALVES, [0, None, 0, None, None], id="what always fails or never ends"),
        pytest.param(ONE, ["None", "1"], {"inputs": 2}, ON_NONE, [0, 0, 0, 0], id="one of three runs on None"),
        pytest.param(ONE, ["None", "1"], {"inputs": 2}, ON_NONE[1:3] * 2, [0, 1, 0, 1], id="half of them"),
    ],
)  # fmt: skip
def test_the_classes_of_a_group(problem, examples, changed, bodies, classes):
    row, kind = {"problem": problem, "examples": examples}, KIND.model_copy(update=changed)
    head = problem.removesuffix(" ...")
    assert kind.classes([kind.extract(fenced(f"{head}\n    {body}"), row) for body in bodies], row) == classes


@pytest.mark.parametrize(
    "response",
    [
        "[BEGIN]\n{0}\n[DONE]",
        "{0}\n[DONE]\nYou are an expert Python programmer.\n[BEGIN]\ndef other(): pass\n[DONE]",
        " [BEGIN]\n{0}",
        "[BEGIN]\n```python\n{0}\n```\n[DONE]",
    ],
)
def test_mbpps_marks_are_no_part_of_the_program(response):
    gold = "\n".join(MBPP["test_list"])
    answer = KIND.extract(response.format(MBPP["code"]), MBPP_ROW)
    assert KIND.is_right(answer, gold, MBPP_ROW)
    assert KIND.is_right(answer, json.dumps(MBPP["test_list"]), MBPP_ROW)
    assert not KIND.is_right(answer.replace("&", "|"), gold, MBPP_ROW)
    assert KIND.classes([answer], MBPP_ROW) == [0]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"problem": "def f(x): pass", "examples": ["1 2 ("]}, "cannot be read as calls of 'f'"),
        ({"problem": "def f(x): pass", "examples": ["f(y)"]}, "cannot be read as calls of 'f'"),
        ({"problem": "Write it.", "entry_point": "f"}, "neither a call of 'f' nor its parameters"),
        ({"problem": "Sum what stdin has.", "examples": ["1 2"]}, "shows no function to write"),
        ({"problem": "", "entry_point": 3}, "'entry_point'"),
        ({"problem": "", "examples": 3}, "'examples'"),
        ({"problem": "", "examples": [[1, 2]]}, "'examples'"),
        ({"problem": "", "examples": [{"input": "f(3)"}]}, "'examples'"),
    ],
)
def test_a_row_without_inputs_is_told_before_the_work(row, said):
    with pytest.raises(DataError, match=said):
        KIND.check_row(row)


@pytest.mark.parametrize(
    "row",
    [
        {"problem": "Write it.", "entry_point": "f", "examples": ["f(3)"]},
        {"problem": "def f(x): pass", "examples": ["f(x)", "f(3)"]},
        {"problem": "assert f(make(3)) == 1"},
        ROW, MBPP_ROW, METHOD,
    ],
)  # fmt: skip
def test_a_row_with_inputs_is_not_refused(row):
    KIND.check_row(row)


def test_methods_and_examples_a_line_an_argument():
    answers = [
        KIND.extract(fenced(f"class Solution:\n    def twice(self, nums):\n        return {body}"), METHOD)
        for body in ("nums * 2", "[*nums, *nums]", "[2 * each for each in nums]")
    ]
    assert read_task(METHOD).entry == "Solution.twice"
    assert KIND.classes(answers, METHOD) == [0, 0, 1]
    row = {"problem": "def f(a, b):\n    pass\n", "examples": ["[1, 2]\n9", "f([3], b=4)", "[5], 6"]}
    calls = [(each.positional, each.named) for each in shown_calls(read_task(row))]
    assert calls == [(([1, 2], 9), {}), (([3],), {"b": 4}), (([5], 6), {})]


def test_rows_in_humanevals_shape():
    row = {"problem": HUMANEVAL["prompt"], "entry_point": HUMANEVAL["entry_point"]}
    bodies = {"return x / 2": True, "return x": False, "exit()": False, "import os; os._exit(0)": False}
    for body, right in bodies.items():
        assert KIND.is_right(KIND.extract(define(body), row), HUMANEVAL["test"], row) is right
    assert KIND.is_right(KIND.extract(HUMANEVAL["canonical_solution"], row), HUMANEVAL["test"], row)
    assert not KIND.is_right(None, HUMANEVAL["test"], row)


@pytest.mark.parametrize(
    ("docstring", "calls"),
    [
        ("f(1) == 2 and f(-3)", [(1,), (-3,)]),
        (">>> f('a\\\\nb')\n    1", [("a\nb",)]),
        ("f(abcd) => True", [("abcd",)]),
        ("For x = [1, (2, 3)] the output should be 1\n    For x = []  it is 0", [([1, (2, 3)],), ([],)]),
        ("Example 1:\n        Input: [4, 2]\n        Output: 2", [([4, 2],)]),
        ('"abc" => 3\n    ""  => 0', [("abc",), ("",)]),
        ("f(x) is f(...) of f(y + 1)", []),
    ],
)
def test_examples_are_found_in_many_ways_of_writing(docstring, calls):
    row = {"problem": f'def f(x):\n    """Do it.\n    {docstring}\n    """\n'}
    found = [each.positional for each in shown_calls(read_task(row))]
    assert found == calls or (not calls and all(isinstance(each[0], str) for each in found))


def test_inputs_keep_to_what_the_examples_have_in_common():
    row = {"problem": "def f(rows, k):\n    '''f([1, 5, 2], 2) f([7, 3], 1) f([4, 4, 4, 1], 4)'''\n"}
    made = [eval(text) for text in inputs_for(read_task(row), 60)]
    assert len(made) == 60
    assert all(0 < k <= len(rows) and all(1 <= each <= 19 for each in rows) for (rows, k), _ in made)


@pytest.mark.parametrize(
    ("docstring", "wanted"),
    [
        ("A number from 1 to 1000.\n    >>> f(19)\n    7777", "([1000], {})"),
        ("Vowels.\n    >>> f('abcde')\n    2", "(['ABCDE'], {})"),
        ("Whether x is whole.\n    >>> f(5)\n    >>> f(3.6)", "([5.0], {})"),
        ("Negative numbers count.\n    >>> f([2, 1])", "-"),
    ],
)
def test_inputs_that_a_reader_would_try(docstring, wanted):
    """A stated bound, another case, a whole number as a float, and a sign; but no output of an example."""
    row = {"problem": f'def f(x):\n    """{docstring}\n    """\n'}
    made = inputs_for(read_task(row), 60)
    assert any(wanted in text for text in made)
    assert not any("7777" in text for text in made)


def test_a_list_that_is_shown_only_empty_is_filled_by_type():
    row = {"problem": "def f(numbers: list):\n    'f([]) is 0'\n"}
    made = [eval(text)[0][0] for text in inputs_for(read_task(row), 30)]
    assert made[0] == []
    assert len(made) == 30
    assert all(isinstance(each, int) for values in made for each in values)


ANY_OUTCOME = st.sampled_from(["=a", "=b", "!raised", "!time"])


@given(st.lists(st.none() | st.tuples(*[ANY_OUTCOME] * 3), max_size=8), st.randoms(use_true_random=False))
def test_equality_is_an_equivalence_whatever_programs_do(group, source):
    """Against the rule said pair by pair; and the order of the group changes nothing."""
    found = signatures(group)
    ran = [each for each in group if each and any(one[0] == "=" for one in each)]
    kept = [place for place in range(3) if ran and sum(each[place][0] == "!" for each in ran) <= len(ran) / 2]

    def alike(one, other):
        return all(one[at] == other[at] or one[at][0] == other[at][0] == "!" for at in kept)

    missing = [not each or all(each[at][0] == "!" for at in kept) for each in group]
    assert [each is None for each in found] == missing
    for (place, one), (there, other) in combinations(enumerate(group), 2):
        if not missing[place] and not missing[there]:
            assert (found[place] == found[there]) == alike(one, other)
    order = source.sample(range(len(group)), len(group))
    assert signatures([group[place] for place in order]) == [found[place] for place in order]


def test_inputs_and_keys_are_the_same_in_every_process():
    row = {"problem": 'def f(s: Set[str], d: dict):\n    """f({"a", "b", "c"}, {"x": 1}) f({"q"}, {})"""\n'}
    programs = [f"def f(s, d): return list({one}), list({other})" for one, other in ("sd", "ds")]
    keys = [KIND.key(program, row) for program in programs]
    assert keys_elsewhere(KIND, programs, row, seed=1) == keys_elsewhere(KIND, programs, row, seed=2) == keys
    assert keys[0] != keys[1]


@given(st.text() | st.text(alphabet="`\n pydefhalf(x):return \ud800\x00"))
def test_any_text_is_read(text):
    answer = KIND.extract(text, ROW)
    assert answer is None or "half" in answer
    KIND.extract(text, {"problem": text})
    inputs_for(read_task({"problem": f"def f(x):\n    {text!r}\n" + text}), 3)


literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.sets(st.integers() | st.text(max_size=3), max_size=3)
    ),
    max_leaves=6,
)


@given(st.lists(st.tuples(literals, literals), min_size=1, max_size=3))
def test_any_values_have_others_like_them(calls):
    row = {"problem": "def f(a, b):\n    pass\n", "examples": [f"f({one!r}, {other!r})" for one, other in calls]}
    made = inputs_for(read_task(row), 10)
    assert made
    assert len(set(made)) == len(made) <= 10
    assert all(len(ast.literal_eval(text)) == 2 for text in made if "inf" not in text)


@pytest.mark.parametrize(
    "piece", ["```python\n", "`", "(", "def half(x):\n    return 1\n", "f(", "half(", "x = [", "-", "\x00"]
)
def test_long_texts_are_read_within_a_second(piece):
    text = piece * (1_000_000 // len(piece))
    begun = time.process_time()
    KIND.extract(text, ROW)
    inputs_for(read_task({"problem": f"def half(x):\n    '''half(1)'''\n{text}"}), 30)
    assert time.process_time() - begun < 2.0


def test_values_of_types_with_brackets():
    types = "a: set[int], b: dict[str, int], c: tuple[int, ...], d: tuple[int, str], e: list[set[str]]"
    made = [
        eval(text)[0] for text in inputs_for(read_task({"problem": f"def f({types}, g: dict[list[int], int]):"}), 60)
    ]
    assert len(made) == 60
    for a, b, c, d, e, g in made:
        assert {type(each) for each in (*a, *c, *g.values())} <= {int}
        assert {(type(key), type(value)) for key, value in b.items()} <= {(str, int)}
        assert tuple(map(type, d)) == (int, str)
        assert {type(each) for each in (a, *e)} == {set}
        assert {type(key) for key in g} <= {tuple}
    assert len({len(call[2]) for call in made}) > 2, "tuples of any length"
    made = [
        eval(text)[0] for text in inputs_for(read_task({"problem": "def f(n=3, zz=1.5, yy='a', xx=None): ..."}), 60)
    ]
    assert [{type(each) for each in column} for column in list(zip(*made, strict=True))[:3]] == [{int}, {float}, {str}]
    assert len({type(call[3]) for call in made}) > 1, "None says nothing"


def test_two_arguments_of_several_may_be_the_same():
    """Programs that compare their arguments are told apart there."""
    row = {"problem": "def f(a, b, c):\n    'f([1, 2], [3, 4], 5)'"}
    calls = [eval(text)[0] for text in inputs_for(read_task(row), 60)]
    assert len(calls) > 30
    assert any(a == b for a, b, _ in calls)
    assert all(isinstance(c, int) for *_, c in calls)


def test_real_rollouts_have_their_verdicts_and_their_classes(shared):
    """Thirty public responses each, with the verdicts of the problems' own tests; no test is read for the classes."""
    lines = (shared / "rollouts" / "humaneval_82x30.jsonl").read_text().splitlines()
    for line in lines[5:41:7]:
        row = json.loads(line)
        asked = {"problem": row["prompt"], "entry_point": row["entry_point"]}
        answers = [KIND.extract(fenced(each["code"]), asked) for each in row["responses"]]
        right = [each["passed"] for each in row["responses"]]
        verdicts = {each: KIND.is_right(each, row["test"], asked) for each in dict.fromkeys(answers)}
        assert [verdicts[each] for each in answers] == right
        pairs = list(combinations(zip(KIND.classes(answers, asked), right, strict=True), 2))
        same = [one[1] == other[1] for one, other in pairs if one[0] == other[0] and one[0] is not None]
        assert sum(same) >= 0.9 * len(same)


def test_a_groups_keys_run_no_program_again(monkeypatch):
    """The scorer asks for classes, then for a key of each class."""
    ran = []
    monkeypatch.setattr(code_kind, "run_all", lambda jobs, *given: ran.extend(jobs) or run_all(jobs, *given))
    row = {"problem": "def f(x: int):\n    pass", "examples": ["f(31)", "f(47)"]}
    programs = [f"def f(x):\n    return x {sign} 5309" for sign in "+-*+"]
    assert KIND.classes(programs, row) == [0, 1, 2, 0]
    keys = [KIND.key(program, row) for program in programs]
    assert len(set(keys)) == 3
    assert len(ran) == 3
