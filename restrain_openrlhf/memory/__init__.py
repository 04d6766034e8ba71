"""How much memory a layout needs: arithmetic on OpenRLHF's flags and a model's shape, to be checked by hand."""

from restrain_openrlhf.memory.estimate import MemoryEstimate, estimate
from restrain_openrlhf.memory.lines import GIB, Line, Phase
from restrain_openrlhf.memory.shape import ModelShape, shape_of

__all__ = ["GIB", "Line", "MemoryEstimate", "ModelShape", "Phase", "estimate", "shape_of"]
