"""The methods that come with the package, one idea per file; each registers itself where it is imported here."""

from restrain_openrlhf.method.methods import ettrl, grpo_gold, restrain, srt, ttrl

__all__ = ["ettrl", "grpo_gold", "restrain", "srt", "ttrl"]
