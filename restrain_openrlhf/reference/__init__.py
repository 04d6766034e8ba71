"""The offline pass of the frozen model. Its file gives u_x, SRT's stored labels and SRT's easy set."""

from restrain_openrlhf.reference.artifact import Reference, ReferenceProvenance, ReferenceRow, load_reference

__all__ = ["Reference", "ReferenceProvenance", "ReferenceRow", "load_reference"]
