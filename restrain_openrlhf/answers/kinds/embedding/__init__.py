"""The kind `embedding`: answers are equal if their sentence embeddings are near each other."""

from restrain_openrlhf.answers.kinds.embedding.kind import Embedding

__all__ = ["Embedding"]
