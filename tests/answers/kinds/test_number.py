"""Numbers: read from every way of writing a known value, one class only within a tolerance, and units by hand."""

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restrain_openrlhf.answers.kind import parse_kind
from restrain_openrlhf.errors import ConfigError, DataError
from tests.answers.kinds.shapes import is_equivalence_whatever_the_order, keys_are_classes

NUMBER, EXACT = parse_kind({"name": "number"}), parse_kind({"name": "number", "relative": 0})
# Ways of writing a whole number, by Python's own formatting.
WHOLE = (
    "{0}", "{0:,}", "{0}.0", "{0}.", "${0:,}", "{0}%", "{0} apples", "**{0}**", "x = {0}", "1 + 1 = {0}", "{0:.12e}",
    "about {0:,}.", "\\boxed{{{0}}}", "The answer is {0}.", "The answer is ${0}$ because 1 + 1 = 2.", "#### {0:,}",
    "<answer>{0}</answer>", "First 3, then 4.\nSo the total is {0} km.", "{0}/1",
    "The answer is 7.\nNo, the answer is {0}",
)  # fmt: skip


def value(response, kind=EXACT, row=None):
    answer = kind.extract(response, row or {})
    return None if answer is None else kind.key(answer, row or {})


@settings(max_examples=300)
@given(st.integers(-(10**11), 10**11), st.sampled_from(WHOLE))
def test_a_whole_number_is_read_however_it_is_written(number, form):
    assert value(form.format(number)) == str(number), form.format(number)


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6))
def test_fractions_and_decimals_are_exact(above, below):
    assert value(f"{above}/{below}") == str(Fraction(above, below))
    sign = "-" if above < 0 else ""
    assert value(f"\\boxed{{{sign}\\frac{{{abs(above)}}}{{{below}}}}}") == str(Fraction(above, below))
    assert value(f"The answer is {above / 64}") == str(Fraction(above, 64))


@given(st.integers(1, 999), st.integers(-300, 300))
def test_powers_of_ten_are_exact(digits, power):
    expected = str(Fraction(digits) * Fraction(10) ** power)
    raised = str(power).translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))
    for form in (f"{digits}e{power}", f"{digits}E{power:+}", f"{digits} x 10^{power}", f"{digits}×10{raised}",
                 f"\\boxed{{{digits} \\times 10^{{{power}}}}}", f"{digits} * 10**{power}"):  # fmt: skip
        assert value(form) == expected, form


@pytest.mark.parametrize(
    ("response", "expected"),
    [("1.5 million", "1500000"), ("$2.5 billion", "2500000000"), ("3 1/2", "7/2"), ("3\\frac{1}{2}", "7/2"),
     ("1 234 567", "1234567"), ("12,34,567", "1234567"), ("1{,}234", "1234"), ("−5", "-5"), ("-$1,200", "-1200"),
     ("–5", "-5"), ("\\boxed{5 \\pm 1}", None), ("5 +/- 1", None), ("5²", None), ("|-5|", None), ("2 dozen", "24"),
     ("5–7", None), ("$-5", "-5"), ("10^6", "1000000"),
     ("10⁻³", "1/1000"), (".5", "1/2"), ("5'000 ", None), ("3, 4", None),
     ("between 3 and 4", None), ("3 to 4", None), ("3-4", None), ("2024-03-01", None), ("3:4", None),
     ("5 ft 6 in", None),
     ("5 hours and 30 minutes", None), ("1/0", None), ("1e401", None), ("9" * 401, None), ("1.2.3", None),
     ("1_000", "1000"), ("The answer is 12_345.5.", "24691/2"), ("\\boxed{1\\_000}", "1000"), ("1_00", None),
     ("10_2", None), ("1_000_", None), ("x_1 = 5", "5"),
     ("0x10", None),
     ("v2", None), ("", None), ("1e999999", None), ("3 ± 1", None), ("NaN", None), ("inf", None)],
)  # fmt: skip
def test_golden_numbers(response, expected):
    assert value(response) == expected


@pytest.mark.parametrize(
    "response",
    ["√2", "2√2", "\\sqrt{2}", "\\boxed{2\\sqrt{3}}", "\\boxed{2\\pi}", "π/4", "\\boxed{\\frac{\\pi}{4}}", "5^2",
     "2^10", "2 ** 10", "2**10", "3×4", "2 \\cdot 3", "0.(3)", "0.\\overline{3}", "\\boxed{2+3}", "2+3 apples",
     "\\boxed{1+\\sqrt{5}}", "\\boxed{\\frac{\\sqrt{3}}{2}}", "\\boxed{x+5}", "x + 5", "\\boxed{x - 5}",
     "\\boxed{y^2 - 4}", "(1+2) - 5", "\\boxed{(1+2)/3}", "\\boxed{5(2)}", "log 5", "\\ln 5", "\\boxed{\\log_2 5}",
     "\\binom{5}{2}", "1.5 thousand million", "1.5M", "$1.5M", "3k", "2bn"],
)  # fmt: skip
def test_a_number_that_is_a_part_of_something_else_is_no_answer(response):
    assert value(response) is None
    assert value(f"The answer is {response}.") is None


@pytest.mark.parametrize(
    ("response", "expected"),
    [("2 hundred", "200"), ("3 thousand", "3000"), ("7 billion", "7000000000"), ("7 trillion", "7000000000000"),
     ("1.5million", "1500000"), ("1.5  million", "1500000"), ("5 millions", "5000000"), ("1.5-million", "1500000"),
     ("minus 5", "-5"), ("The answer is negative 5.", "-5"), ("Total is -5", "-5"), ("Total is - 5", "-5"),
     ("x = - 5", "-5"), ("f(x) = -5", "-5"), ("3⁄4", "3/4"), ("5 (five)", "5"), ("The answer is 3 (2+1).", "3"),
     ("42 - because it is so", "42"), ("5+ years", "5"), ("3 + 4 = 7", "7"), ("**5** apples", "5"), ("60 km/h", "60"),
     ("5km", "5"), ("Using √2 we get 5", "5"), ("It is 5!", "5"), ("The answer is clear.\nIt is 42", "42")],
)  # fmt: skip
def test_what_stands_beside_a_number_and_is_no_part_of_it(response, expected):
    assert value(response) == expected


def test_texts_without_a_value_are_told_apart():
    assert EXACT.key("none", {}) != EXACT.key("no number", {})


def classes_by_trying(values, tolerance):
    """The fewest classes of sorted values in each of which all lie within the tolerance of the smallest, filled from
    below: every way of cutting the sorted values is tried."""
    distinct = sorted(set(values))
    for cuts in range(len(distinct)):
        fits = []
        for places in combinations(range(1, len(distinct)), cuts):
            parts = [distinct[i:j] for i, j in zip((0, *places), (*places, len(distinct)), strict=True)]
            if all(part[-1] - part[0] <= tolerance(part[0]) for part in parts):
                fits.append((tuple(-len(part) for part in parts), parts))
        if fits:
            return min(fits)[1]
    return []


@settings(max_examples=300)
@given(st.lists(st.integers(-40, 40), min_size=1, max_size=7), st.integers(0, 5), st.sampled_from([0, 0.1, 0.5]))
def test_classes_are_the_fewest_intervals_within_the_tolerance(numbers, absolute, relative):
    kind = parse_kind({"name": "number", "relative": relative, "absolute": absolute})
    found = kind.classes([str(number) for number in numbers], {})
    parts = classes_by_trying(numbers, lambda first: max(absolute, Fraction(str(relative)) * abs(first)))
    for one, a in zip(numbers, found, strict=True):
        assert [other for other, b in zip(numbers, found, strict=True) if a == b] == [
            other for other in numbers if any(one in part and other in part for part in parts)
        ]


def test_a_chain_of_neighbours_is_not_one_class():
    kind = parse_kind({"name": "number", "relative": 0, "absolute": 1})
    assert kind.classes(["3", "1", "2", "4", None, "5"], {}) == [0, 1, 1, 0, None, 2]
    assert kind.classes([str(number) for number in range(100)], {})[-1] == 49


@given(st.lists(st.sampled_from(["1", "1.0", "1.00005", "1.0001", "1.0002", "2", "1e0", None]), min_size=1, max_size=5))
def test_being_the_same_number_is_an_equivalence(answers):
    is_equivalence_whatever_the_order(NUMBER, {}, answers)
    is_equivalence_whatever_the_order(EXACT, {}, answers)
    keys_are_classes(EXACT, {}, [answer for answer in answers if answer])


def test_gold_is_within_the_tolerance_of_itself():
    kind = parse_kind({"name": "number", "relative": 0.05})
    assert kind.is_right("95", "100", {})
    assert kind.is_right("105", "100", {})
    assert not kind.is_right("94.9", "100", {})
    assert not kind.is_right(None, "100", {})
    with pytest.raises(DataError, match="is not a single number"):
        kind.is_right("5", "some", {"problem": "How many?"})


def pint_is_there():
    pytest.importorskip("pint", reason="needs Pint: pip install restrain-openrlhf[units]")


@pytest.mark.parametrize(
    ("response", "unit", "expected"),
    [("1500 m", "km", "3/2 km"), ("1.5", "km", "3/2 km"), ("1 mile", "m", "201168/125 m"), ("36 km/h", "m/s", "10 m/s"),
     ("68 °F", "degC", "20 degC"), ("0 degrees Celsius", "kelvin", "5463/20 kelvin"),
     ("9.8 m/s²", "m/s^2", "49/5 m/s^2"),
     ("\\boxed{9.8\\ \\mathrm{m/s^2}}", "m/s^2", "49/5 m/s^2"), ("\\boxed{1500\\text{ m}}", "km", "3/2 km"),
     ("25%", "percent", "25 percent"), ("25%", "dimensionless", "1/4 dimensionless"), ("1.5 kg", "km", None),
     ("5 in", "cm", "127/10 cm"), ("5 in total", "cm", "5 cm"), ("5 meters tall", "m", "5 m"),
     ("2 square meters", "cm^2", "20000 cm^2"),
     ("1 kWh", "J", "3600000 J"), ("60 km per hour, as said", "km/h", "60 km/h"), ("3 apples", "km", "3 km"),
     ("1 m^99999999", "m", "1 m"), ("The answer is 1500 m, since it is so.", "km", "3/2 km"),
     ("It is 1500 m because it is so.", "km", "3/2 km"), ("10 dB", "m", None)],
)  # fmt: skip
def test_units_worked_by_hand(response, unit, expected):
    pint_is_there()
    assert value(response, EXACT, {"unit": unit}) == expected
    assert value(response, parse_kind({"name": "number", "relative": 0, "unit": unit})) == expected


def test_votes_and_gold_are_in_the_rows_unit():
    pint_is_there()
    row = {"problem": "How far?", "unit": "km"}
    assert NUMBER.classes(["1500 m", "1.5 km", "1.5", "1500", "0.932057 miles"], row) == [0, 0, 0, 1, 0]
    assert NUMBER.is_right("1500 m", "1.5", row)
    assert not NUMBER.is_right("1500", "1.5", row)


def test_a_unit_that_is_none_and_a_missing_pint_are_said(monkeypatch):
    pint_is_there()
    with pytest.raises(DataError, match="apples"):
        NUMBER.extract("5", {"problem": "p", "unit": "apples"})
    from restrain_openrlhf.answers.kinds import units

    monkeypatch.setitem(__import__("sys").modules, "pint", None)
    units._registry.cache_clear()
    with pytest.raises(ConfigError, match=r"restrain-openrlhf\[units\]"):
        NUMBER.extract("5", {"unit": "km"})
    assert NUMBER.extract("5 km", {}) == "5"


@settings(max_examples=200)
@given(st.text(alphabet="km/^*()·⁻²³ -1°CµinΩsN%", max_size=12))
def test_what_follows_a_number_is_read_whatever_it_is(text):
    pint_is_there()
    answer = NUMBER.extract(f"5 {text}", {"unit": "km"})
    assert answer is None or NUMBER.key(answer, {"unit": "km"}).endswith(" km")


def test_answers_to_different_prompts_are_alike_within_the_tolerance_and_in_one_unit():
    """By hand: 1e-4 of 100 is .01. In km and in m, and without a unit, 100 is another answer."""
    asked = [("100", "km"), ("100.001 km", "km"), ("100", "m"), ("100", None), ("100.01", None), ("100.02", None)]
    keys = [NUMBER.key(answer, {} if unit is None else {"unit": unit}) for answer, unit in asked]
    assert NUMBER.alike([*keys, None, "text none", "text none"]) == [0, 0, 1, 2, 2, 3, None, 4, 4]
    mixed = parse_kind({"name": "mixed", "default": "text"})
    named = [("100", "number"), ("100.001", "number"), ("100", "text"), ("B", "choice"), ("(B)", "choice")]
    assert mixed.alike([mixed.key(answer, {"answers": name}) for answer, name in named]) == [0, 0, 1, 2, 2]
