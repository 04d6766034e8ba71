"""The kind `judge`: answers that a function or a service of the user's takes for equal."""

from restrain_openrlhf.answers.kinds.judge.kind import Judge

__all__ = ["Judge"]
