"""The methods that come with the package, a file for each idea. Importing a file registers its methods."""

from restrain_openrlhf.method.methods import ettrl, grpo_gold, restrain, srt, ttrl

__all__ = ["ettrl", "grpo_gold", "restrain", "srt", "ttrl"]
