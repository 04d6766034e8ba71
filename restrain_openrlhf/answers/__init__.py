"""From a response's text to classes of equal answers."""

from restrain_openrlhf.answers.extract import EXTRACTOR_VERSION, extract, final_answer
from restrain_openrlhf.answers.keys import canonical_key, classes

__all__ = ["EXTRACTOR_VERSION", "canonical_key", "classes", "extract", "final_answer"]
