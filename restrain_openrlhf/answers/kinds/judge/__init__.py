"""The kind `judge`: the user's own function or service decides which answers are equal."""

from restrain_openrlhf.answers.kinds.judge.kind import Judge

__all__ = ["Judge"]
