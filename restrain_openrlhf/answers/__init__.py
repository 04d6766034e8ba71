"""From a response's text to classes of equal answers."""

from restrain_openrlhf.answers.classes import classes
from restrain_openrlhf.answers.extract import EXTRACTOR_VERSION, extract

__all__ = ["EXTRACTOR_VERSION", "classes", "extract"]
