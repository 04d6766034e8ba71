"""The engine as a whole: public cases, hostile input, determinism, and that equality is an equivalence."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restrain_openrlhf.answers import MATHEMATICS, canonical_key, classes, extract
from restrain_openrlhf.answers.kinds.mathematics import is_right
from tests.answers.kinds.shapes import keys_elsewhere

ATOMS = (
    r"\frac \sqrt \binom \pm \sin \log ^ _ { } ( ) [ ] | ! + - * / = < > , ; . 0 1 2 99 x y e i \pi \infty \cup \in "
    r"\text{and} \begin{pmatrix} \end{pmatrix} & \\ \{ \} \boxed{ $ % 10^ sin( \left \right \le f( a_{ : \sum_{"
).split()


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_public_pairs_by_vote_and_by_evaluation(shared):
    pairs = rows(shared / "grading" / "pairs_public.jsonl")
    core = [row for row in pairs if row["policy"] is None]
    verdicts = [(canonical_key(row["a"]) == canonical_key(row["b"]), row["equal"]) for row in core]
    assert sum(ours and not truth for ours, truth in verdicts) == 0
    assert sum(truth and not ours for ours, truth in verdicts) <= 1
    evaluated = [(is_right(row["a"], row["b"]), row) for row in pairs]
    assert not [row for ours, row in evaluated if ours and not row["equal"] and not row["qwen_reference"]]
    assert sum(ours == row["qwen_reference"] for ours, row in evaluated) / len(evaluated) > 0.88


def test_public_extraction_cases(shared):
    cases = rows(shared / "grading" / "extract_public.jsonl")
    right = sum(
        (answer is not None and canonical_key(answer) == canonical_key(case["expected_answer"])) == case["match"]
        for case in cases
        for answer in [extract(case["response"])]
    )
    assert right >= 127


def test_real_rollouts_are_graded_like_the_reference_but_for_one_that_it_got_wrong(shared):
    differences = [
        (row["id"], index)
        for row in rows(shared / "rollouts" / "math_50x8.jsonl")
        for index, (response, verdict) in enumerate(zip(row["responses"], row["reference_correct"], strict=True))
        if (len(set(classes([extract(response), row["answer"]]))) == 1) != verdict
    ]
    # 10000 against 10{,}000, which the reference grading calls different.
    assert differences == [("72", 7)]


def test_hostile_answers_run_nothing_and_come_back_at_once(shared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for probe in rows(shared / "grading" / "probes.jsonl"):
        for text in (probe["a"], probe["b"], f"\\boxed{{{probe['a']}}}"):
            canonical_key(text)
            extract(text)
            is_right(text, probe["b"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    ["1/" * 400 + "3", "2*" * 120 + "x", "(" * 300 + "1" + ")" * 300, "-" * 500 + "3", r"\sin " * 300, "2^" * 300 + "2",
     "2000!" * 50, r"\frac" * 300, r"\sqrt{" * 200 + "2" + "}" * 200, "[" * 2000, "9" * 100_000, r"\{1," * 500,
     r"x^{12345}", r"(\sqrt{2}+x)^{9999}", r"\binom{9999}{5000}", r"\tan(10^5)", "1+" * 900 + "1",
     "5 " + "a" * 60 + "!", "2. The students of the first group had a total score of 25 points:"],
)  # fmt: skip
def test_deep_and_long_texts_are_bounded(text):
    assert canonical_key(text)
    extract(text)
    extract(f"\\boxed{{{text}}}")


@settings(max_examples=400)
@given(st.lists(st.sampled_from(ATOMS), max_size=25).map("".join) | st.text(max_size=60))
def test_any_text_has_a_key_and_a_total_extraction(text):
    assert canonical_key(text) == canonical_key(text)
    answer = extract(text)
    assert answer is None or answer.strip()


expressions = st.recursive(
    st.integers(0, 20).map(str) | st.sampled_from(["x", "y", r"\pi", "0.5", r"\sqrt{2}"]),
    lambda inner: st.tuples(inner, inner).flatmap(
        lambda pair: st.sampled_from(
            [
                f"({pair[0]})+({pair[1]})",
                f"({pair[0]})({pair[1]})",
                rf"\frac{{{pair[0]}}}{{1+({pair[1]})^2}}",
                f"-({pair[0]})",
            ]
        )
    ),
    max_leaves=6,
)


@given(expressions, expressions)
def test_equal_expressions_are_equal_however_they_are_written(one, other):
    assert canonical_key(f"({one})+({other})") == canonical_key(f"({other})+({one})")
    assert canonical_key(f"({one})*2") == canonical_key(f"({one})+({one})")
    assert canonical_key(f"({one})-({one})") == canonical_key("0")


def test_keys_are_the_same_in_another_process():
    texts = [r"\frac{1}{3}x+y", r"\{1,2\}", "k=0, n=1", "some words", "9" * 500]
    assert keys_elsewhere(MATHEMATICS, texts, {}) == [canonical_key(text) for text in texts]


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{12}", "12"),
        (r"\boxed{1} or rather \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed {7}", "7"),
        (r"\fbox{x+1}", "x+1"),
        (r"9750\boxed{579}", "579"),
        ("The final answer is 42.", "42"),
        ("Answer: $x=3$", "x=3"),
        ("#### 1,234", "1,234"),
        (r"\boxed 5", "5"),
        (r"\boxed{\left\{1,2\right\}}", r"\left\{1,2\right\}"),
        ("So the balance is −5.", "−5"),
        ("So the balance is –5.", "–5"),
        ("The answer is $x$ = 5.", "$x$ = 5"),
        (r"The answer is $\pi$/2.", r"$\pi$/2"),
        ("Therefore $x$ = 5 holds.", "$x$ = 5 holds"),
        ("**The answer is $5$**", "5"),
        ("The answer is:\n- 5\n- 6", "5"),
        ("The answer is -5", "-5"),
        ("2π", "2π"),
        ("It costs 1.5 million in all", "1.5 million"),
        ("So there are 2^10 of them", None),
        ("It is then 3,5 as above", None),
        ("We meet at 10:30", None),
        ("So it cannot be 3.", None),
        ("So the root cannot be $3$.", None),
        ("So x isn't 3.", None),
        ("no answer here", None),
        (r"\boxed{}", None),
        (r"\boxed{unfinished", None),
        ("", None),
    ],
)
def test_the_last_final_answer_is_found(response, answer):
    assert extract(response) == answer


def test_classes_are_numbered_by_first_appearance_and_skip_missing_answers():
    assert classes(["7", None, "3", "07", None, "3.0"]) == [0, None, 1, 0, None, 1]
