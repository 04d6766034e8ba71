"""How much memory a layout needs: arithmetic on OpenRLHF's flags and a model's shape that can be checked by hand."""

from restrain_openrlhf.config.memory.estimate import CONTEXT, estimate, why_it_cannot_fit
from restrain_openrlhf.config.memory.lines import GIB, TRAINING, Phase
from restrain_openrlhf.config.memory.shape import ModelShape, NoEstimateError, shape_of

__all__ = [
    "CONTEXT",
    "GIB",
    "TRAINING",
    "ModelShape",
    "NoEstimateError",
    "Phase",
    "estimate",
    "shape_of",
    "why_it_cannot_fit",
]
