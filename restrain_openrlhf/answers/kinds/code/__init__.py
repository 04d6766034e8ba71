"""Code: Python programs, which are equal if they return the same on the same inputs, run in a sandbox."""

from restrain_openrlhf.answers.kinds.code.kind import Code

__all__ = ["Code"]
