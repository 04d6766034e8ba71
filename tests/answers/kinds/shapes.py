"""What the tests of kinds share: hostile texts, and what makes a kind's classes an equivalence."""

import json
import os
import subprocess
import sys
import time
from itertools import permutations

# Repeated up to a megabyte: openings, closings, announcements and numbers that a pattern might try again and again,
# between bars.
ATOMS = (
    *'[|]|{|}|"|\\|\\"|[1,|{"a":|[]|"]|```\n|```json\n{|answer is |answer:|answer to the |<answer>|</answer>'.split(
        "|"
    ),
    *"</think>|####| |\n|*|**|`|$|- |(|\\boxed{|\\boxed{1},|\\text{|\\frac{1}|1|1,|1,000|1 000 |1/|1e|10^|10^9 ".split(
        "|"
    ),
    *"A |(A) |A is |option |is |= |the |'|é|\u0301|\ud800|\0|1 m|km^|. A|。|J. ".split("|"),
    "<|a|>",
)
STRANGE = ("", " ", "\0", "\ud800", "a\ud800b", "\U0001f600", "\u202e1\u202c", "\\boxed{\ud800}", "<answer>\0</answer>")


def slowest(kind, row):
    """Seconds that the slowest of the atoms takes, in a megabyte and in a short text, and which it is."""
    times = []
    for atom in ATOMS:
        for size in (1_000_000, 12_000):
            text = atom * (size // len(atom))
            start = time.process_time()
            for response in (text, f"The answer is {text}", f"<answer>{text}</answer>"):
                answer = kind.extract(response, row)
                if answer is not None:
                    kind.key(answer, row)
            times.append((time.process_time() - start, atom, size))
    return max(times)


def is_equivalence_whatever_the_order(kind, row, answers):
    """Whether equal places are equal in every order of a few answers, and equal by key as by class."""
    first = kind.classes(answers, row)
    pairs = {(one, other): first[one] == first[other] for one in range(len(answers)) for other in range(len(answers))}
    assert all(pairs[place, place] for place in range(len(answers)))
    for order in list(permutations(range(len(answers))))[:24]:
        found = kind.classes([answers[place] for place in order], row)
        assert found[0] in (0, None)
        for i, one in enumerate(order):
            for j, other in enumerate(order):
                assert (found[i] == found[j]) is pairs[one, other]


def keys_are_classes(kind, row, answers):
    """Whether answers have one key exactly where they have one class."""
    found = kind.classes(answers, row)
    for one, a in zip(answers, found, strict=True):
        for other, b in zip(answers, found, strict=True):
            assert (kind.key(one, row) == kind.key(other, row)) is (a == b)


ELSEWHERE = """
import json, sys
from restrain_openrlhf.answers import parse_kind
block, answers, row = json.load(sys.stdin)
print(json.dumps([parse_kind(block).key(answer, row) for answer in answers]))
"""


def keys_elsewhere(kind, answers, row, seed=7):
    """The keys that another process makes, with another seed of Python's hashes."""
    given = json.dumps([kind.model_dump(mode="json"), answers, row])
    here = {**os.environ, "PYTHONHASHSEED": str(seed)}
    words = [sys.executable, "-c", ELSEWHERE]
    return json.loads(subprocess.run(words, input=given, env=here, capture_output=True, text=True, check=True).stdout)
