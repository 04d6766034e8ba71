"""Short texts that mean much the same, by clusters of a sentence embedding model's vectors."""

from collections.abc import Hashable, Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from restrain_openrlhf.answers.kind import Row, number_classes, register
from restrain_openrlhf.answers.kinds.compared_texts import ComparedTexts
from restrain_openrlhf.answers.kinds.embedding.encoder import encoder

Linkage = Literal["complete", "average"]
# Similarities are rounded, so that ties do not depend on a processor's rounding.
DECIMALS = 6
# Time and memory of clustering grow with the cube and the square of the number of texts.
MOST_ALIKE = 1000


@register
class Embedding(ComparedTexts):
    """Short texts are equal if a sentence embedding model of your choice puts them into the same cluster.

    The different texts of a group are clustered by the cosine of their vectors. The model runs on the CPU, once for
    each different text of a process. Needs the extra `embedding`.
    """

    version: ClassVar[str] = "1"

    name: Literal["embedding"] = "embedding"
    model: str = Field(
        min_length=1,
        description="A sentence embedding model: a folder, or a hub id such as sentence-transformers/all-MiniLM-L6-v2.",
    )
    threshold: Annotated[float, Field(gt=-1, le=1)] = Field(
        description=(
            "Two clusters are merged if their cosine similarity is at least this. There is no default, because the "
            "right value depends on the model."
        )
    )
    linkage: Linkage = Field(
        default="complete",
        description=(
            "Similarity of two clusters: of their least similar texts (`complete`), so that any two answers of a "
            "class reach the threshold; or the average over all pairs (`average`)."
        ),
    )
    prefix: str = Field(
        default="", description='Text put before every answer, if the model was trained with one: "query: " for E5.'
    )
    revision: str | None = Field(default=None, description="The hub's revision of the model; null: the newest.")

    def check_machine(self) -> None:
        """Load the model."""
        super().check_machine()
        encoder(self.model, self.revision)

    def compared(self, texts: Sequence[str], row: Row) -> list[int]:
        """The cluster of each text.

        Raises ConfigError without the model or its libraries, GraderError without a vector.
        """
        vectors = encoder(self.model, self.revision).vectors([self.prefix + text for text in texts])
        return clusters(vectors, self.threshold, self.linkage)

    def alike(self, keys: Sequence[str | None]) -> list[int | None]:
        """Clusters of the first MOST_ALIKE different keys; a later key is alike only to itself."""
        texts = sorted(list(dict.fromkeys(filter(None, keys)))[:MOST_ALIKE])
        numbers = self.compared(texts, {}) if len(texts) > 1 else [0] * len(texts)
        found: dict[str, Hashable] = dict(zip(texts, numbers, strict=True))
        return number_classes([None if key is None else found.get(key, key) for key in keys])


def clusters(vectors: NDArray[np.float32], threshold: float, linkage: Linkage) -> list[int]:
    """The cluster of each of n unit vectors, of shape (n, dimension).

    The two most similar clusters are joined, at a tie the first such pair, while their similarity is at least the
    threshold. It is the similarity of their least similar members (complete), or the mean over pairs of members
    (average).
    """
    exact = vectors.astype(np.float64)
    similarity = np.round(exact @ exact.T, DECIMALS)
    np.fill_diagonal(similarity, -np.inf)
    label, size = np.arange(len(vectors)), np.ones(len(vectors))
    while len(vectors) > 1:
        kept, gone = sorted(divmod(int(similarity.argmax()), len(vectors)))
        if similarity[kept, gone] < threshold:
            break
        similarity[kept] = _joined(similarity[kept], similarity[gone], size[kept], size[gone], linkage)
        similarity[:, kept] = similarity[kept]
        similarity[gone], similarity[:, gone], similarity[kept, kept] = -np.inf, -np.inf, -np.inf
        size[kept] += size[gone]
        label[label == gone] = kept
    return [int(each) for each in label]


def _joined(
    first: NDArray[np.float64], second: NDArray[np.float64], n: float, m: float, linkage: Linkage
) -> NDArray[np.float64]:
    """The similarity of every cluster to two joined ones; it stays -inf for clusters that are gone."""
    if linkage == "complete":
        return np.minimum(first, second)
    return np.round((n * first + m * second) / (n + m), DECIMALS)
