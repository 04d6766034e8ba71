"""From a response's text to classes of equal answers."""

from restrain_openrlhf.answers.classes import classes
from restrain_openrlhf.answers.extract import EXTRACTOR_VERSION, extract
from restrain_openrlhf.answers.keys import canonical_key

__all__ = ["EXTRACTOR_VERSION", "canonical_key", "classes", "extract"]
