"""Code: programs in Python, which are equal where they return the same on the same inputs, run in a sandbox."""

from restrain_openrlhf.answers.kinds.code.kind import Code

__all__ = ["Code"]
