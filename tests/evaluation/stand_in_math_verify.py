"""A math_verify for the plumbing's tests: reads the last box, calls equal texts equal, hangs and dies when told to."""

import os
import re
import time


def parse(text, parsing_timeout):
    """As the library's: values and the text they were read from, nothing where nothing is found."""
    assert parsing_timeout is None
    if "HANG" in text:
        time.sleep(600)
    if "DIE" in text:
        os._exit(1)
    print("noise on the standard output")
    found = re.findall(r"\\boxed\{(.*?)\}", text)
    return [0, found[-1]] if found else []


def verify(gold, target, timeout_seconds):
    """As the library's."""
    assert timeout_seconds is None
    return bool(target) and gold[-1] == target[-1]
