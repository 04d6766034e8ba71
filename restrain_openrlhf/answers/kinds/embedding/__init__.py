"""The kind `embedding`: answers whose sentence embeddings lie near each other."""

from restrain_openrlhf.answers.kinds.embedding.kind import Embedding

__all__ = ["Embedding"]
