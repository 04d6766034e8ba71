"""Answers in users' languages, scripts and words: what each kind reads, by tables worked by hand."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.answers import canonical_key, classes, extract, parse_kind
from restrain_openrlhf.answers.words import LANGUAGES

NUMBER, CHOICE, TEXT = (parse_kind({"name": name}) for name in ("number", "choice", "text"))
CITIES = {"options": ["London", "Paris", "Rome", "Madrid"]}

# One way to announce an answer in each language, with a decimal number as that language writes it.
ANNOUNCED = {
    "ar": ("الإجابة الصحيحة هي {}.", "٣٫٥"),
    "bn": ("উত্তর হল {}", "৩.৫"),
    "de": ("Die richtige Antwort lautet: {}.", "3,5"),
    "en": ("The answer is {}.", "3.5"),
    "es": ("La respuesta a la pregunta es **{}**.", "3,5"),
    "fr": ("La réponse correcte est {}.", "3,5"),
    "hi": ("सही उत्तर {} है।", "३.५"),
    "id": ("Jawabannya adalah {}.", "3,5"),
    "it": ("Quindi la risposta è {}.", "3,5"),
    "ja": ("正しい答えは{}です。", "３．５"),
    "ko": ("따라서 정답은 {}입니다.", "3.5"),
    "nl": ("Het antwoord is dus {}.", "3,5"),
    "pl": ("Odpowiedź to {}.", "3,5"),
    "pt": ("A resposta final é {}.", "3,5"),
    "ru": ("Ответ — {}.", "3,5"),
    "th": ("คำตอบคือ {}", "๓.๕"),
    "tr": ("Doğru cevap {}'dir.", "3,5"),
    "uk": ("Відповідь: {}.", "3,5"),
    "vi": ("Đáp án là {}.", "3,5"),
    "zh": ("所以正确答案是{}。", "3.5"),
}


@pytest.mark.parametrize("code", LANGUAGES)
def test_an_answer_that_is_announced_in_a_language_is_read_by_every_kind(code):
    form, number = ANNOUNCED[code]
    assert CHOICE.extract(form.format("B"), {}) == "B"
    assert CHOICE.extract(f"London (A)?\n{form.format('(B)')}", CITIES) == "Paris"
    assert TEXT.key(TEXT.extract(form.format("Paris"), {}), {}) == "paris"
    assert NUMBER.key(NUMBER.extract(form.format(number), {}), {}) == "7/2"
    assert canonical_key(extract(form.format(number))) == canonical_key("7/2")
    assert extract(form.format("$x+1$")) == "x+1"


def number(response):
    answer = NUMBER.extract(response, {})
    return answer and NUMBER.key(answer, {})


@pytest.mark.parametrize(
    ("response", "expected"),
    [("Antwort: 1.234,5", "2469/2"), ("答えは２４です。", "24"), ("The answer is ½.", "1/2"),
     ("The answer is twenty.", "20"),
     ("Resposta: 1.000,25", "4001/4"), ("Ответ: 12", "12"), ("الجواب: ٢٤", "24"), ("उत्तर: २४", "24"),
     ("정답은 3입니다", "3"), ("La réponse est 3,5 mètres", "7/2"), ("Antwort: 1.234", "1234"), ("Antwort: 3,141",
      "3141/1000"),
     ("Der Wert ist \\boxed{3,5}, und das ist es für den Kreis.", "7/2"), ("Antwort: 1 234,5", "2469/2"),
     ("合計は24です", "24"), ("共有24个苹果", "24"), ("The answer is ١٬٢٣٤٫٥", "2469/2"), ("So it is 2½.", "5/2"),
     ("³⁄₄", "3/4"),
     ("Answer： ２４", "24"), ("The answer is 12^{\\text{th}}", "12"), ("The answer is the 12th.", "12"),
     # English has a decimal point, regions of Spanish differ, and a German text may have points.
     ("Respuesta: 1,234", "1234"), ("Respuesta: 3,5", "7/2"), ("Es sind 2.5 davon. Antwort: 1.234", "617/500"),
     ("The answer is 1,234", "1234"), ("The total is 3, 5", None), ("Antwort: (3,5)", None), ("Antwort: 1, 5", None),
     # What is ruled out.
     ("Die Antwort ist nicht 5", None), ("La respuesta no es 5", None), ("La réponse n'est pas 5", None),
     ("答案不是5", None),
     ("정답은 3이 아닙니다", None), ("उत्तर 24 नहीं है", None), ("答えは24ではありません", None)],
)  # fmt: skip
def test_numbers(response, expected):
    assert number(response) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [("twenty-one", "21"), ("a hundred and five", "105"), ("sixty", "60"), ("Twelve hundred apples", "1200"),
     ("zero", "0"),
     ("two million three hundred thousand and four", "2300004"), ("minus twenty", "-20"), ("two dozen", "24"),
     ("one", "1"),
     ("one half", "1/2"), ("three and a half", "7/2"), ("two-thirds", "2/3"), ("one-third", "1/3"), ("two sevenths",
      "2/7"),
     ("one of them", None), ("twenty-first", None), ("twenty to thirty", None), ("two, three", None),
     ("nineteen ninety", None),
     ("three point five", None), ("not twenty", None), ("in two words", None)],
)  # fmt: skip
def test_number_words(words, expected):
    assert number(f"The answer is {words}.") == expected
    assert number(f"So it is {words}.") == expected


@given(st.integers(0, 10**6), st.integers(1, 999))
def test_digits_of_every_script_are_the_same_number(whole, part):
    for zero in ("٠", "۰", "०", "০", "๐", "０", "0"):
        digits = str.maketrans({str(digit): chr(ord(zero) + digit) for digit in range(10)})
        written = f"{whole}.{part:03}".translate(digits)
        assert number(written) == str(whole + Fraction(part, 1000))
        assert canonical_key(written) == canonical_key(f"{whole}.{part:03}")
        assert TEXT.key(written, {}) == f"{whole}.{part:03}"


def test_a_comma_that_no_language_decides_on_is_one_where_the_group_says_so():
    assert [number("x = 3,5"), number("The answer is 1.234,5 km")] == ["text 3,5", "text 1234,5"]
    assert NUMBER.classes(["3,5", "7/2", "3,50", "4", "3,6", "1234,5", "1234.5", "3,5"], {}) == [0, 0, 0, 1, 2, 3, 3, 0]
    assert NUMBER.is_right("3,5", "3.5", {})
    assert not NUMBER.is_right("3,5", "35", {})


@pytest.mark.parametrize(
    ("response", "letter"),
    [("Antwort: C", "C"), ("**Respuesta: D**", "D"), ("正しい答えはBです。", "B"), ("I would pick B — a safe choice.",
     "B"),
     ("ANSWER: <A>", "A"), ("Odpowiedź: B", "B"), ("答案是 C", "C"), ("答案：Ｃ", "C"), ("所以选C。", "C"),
     ("答案是选项C", "C"),
     ("La respuesta correcta es la opción B.", "B"), ("La réponse est la B.", "B"),
     ("La bonne réponse est l'option C", "C"),
     ("A resposta correta é a letra C.", "C"), ("Antwort B ist richtig.", "B"), ("B es la correcta.", "B"),
     ("Bが正解です。", "B"),
     ("B가 정답입니다.", "B"), ("Answer: 【B】", "B"), ("I'd go with C.", "C"), ("I choose (B), because it is so.",
     "B"),
     ("Die Antwort ist nicht B.", None), ("La respuesta no es B", None), ("答えはBではありません", None),
     ("答えはA型です", None),
     ("I would not pick B — a bad choice.", None), ("I can't go with B.", None), ("Choose B or C", None),
     ("so A, B and C are wrong", None)],
)  # fmt: skip
def test_choices(response, letter):
    assert CHOICE.extract(response, {}) == letter
    assert CHOICE.extract(response, CITIES) == (letter and CITIES["options"]["ABCD".index(letter)])


@pytest.mark.parametrize(
    ("response", "answer"),
    [("Antwort: C", "C"), ("Die Antwort lautet also 3,5 wie oben", "3.5"), ("La respuesta es la 12.", "12"),
     ("答えは24個です。", "24"), ("Ответ: 12 яблок", "12"), ("Ответ: синий", "синий"), ("Antwort: 5x", "5x"),
     ("Antwort: 2π", "2π"),
     ("Antwort: x > 12", "x > 12"), ("La respuesta es $x=3$.", "x=3"), (r"Es ist \boxed{3{,}5} und nicht mehr", "3.5"),
     (r"Also gilt für den Wert: das ist \boxed{\frac{3,5}{2}}", r"\frac{3.5}{2}"),
     (r"Das ist nicht für uns: \boxed{(1,5)}", "(1,5)"),
     ("Die Antwort ist nicht 5.", None), ("정답은 3이 아닙니다", None), ("So we get ½.", "½"), ("Therefore 3,5", None)],
)  # fmt: skip
def test_mathematics(response, answer):
    assert extract(response) == answer


@pytest.mark.parametrize(
    ("equal", "different"),
    [
        ([r"12^{\text{th}}", "12", "12th", "12^{th}", r"12\text{th}"], [r"n^{\text{th}}", "12^{t}", "2st"]),
        (["½", r"\frac12", "³⁄₆", "٠٫٥"], ["2½", "12"]),
        (["2½", r"2\frac12", "5/2"], ["21/2", "1"]),
        (
            ["2x+4y-3=0", r"y = -\frac12 x + \frac34", "y=-x/2+3/4", "4y = 3 - 2x", "y - 3/4 = -x/2",
             r"\frac{2x}{3}+\frac{4y}{3}=1"],
            ["2x+4y-4=0", "2x-4y-3=0", r"y = -\frac12 x - \frac34", "3/4", "2a+4b-3=0"],
        ),
        (["x = 5", "5", "x - 5 = 0", "2x = 10"], ["x^2 = 25", "y = 5x", "|x| = 5", "f(5) = 0", "x y = 5"]),
        (["x^2 - y + 1 = 0", "y = x^2 + 1"], ["y^2 - x + 1 = 0", "x^2 + y^2 = 1"]),
        (["2x+3y-z=0", "z = 2x+3y"], ["2x+3y+z=0"]),
        (["x^2+y^2=1", "2x^2+2y^2=2"], ["x^2+y^2=2", "x^2-y^2=1"]),
        (["x(y-1) = 0", "2xy - 2x = 0"], ["y = 1", "x = 0"]),
    ],
)  # fmt: skip
def test_keys_of_ordinals_fractions_and_equations(equal, different):
    assert set(classes(equal)) == {0}
    assert not set(classes([equal[0], *different])[1:]) & {0}
