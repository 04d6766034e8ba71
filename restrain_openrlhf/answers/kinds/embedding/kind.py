"""Short texts that mean much the same: clusters of a sentence embedding model's vectors."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from restrain_openrlhf.answers.kind import Row, register
from restrain_openrlhf.answers.kinds.compared_texts import ComparedTexts
from restrain_openrlhf.answers.kinds.embedding.clusters import Linkage, clusters
from restrain_openrlhf.answers.kinds.embedding.encoder import encoder


@register
class Embedding(ComparedTexts):
    """Short texts vote by the cluster that a sentence embedding model of your choice puts them into.

    The different texts of a group are clustered by the cosine of their vectors. The model runs on the CPU, once for
    each different text of a process. Needs the extra `embedding`.
    """

    version: ClassVar[str] = "1"

    name: Literal["embedding"] = "embedding"
    model: str = Field(
        min_length=1,
        description="A sentence embedding model: a folder, or a hub id such as sentence-transformers/all-MiniLM-L6-v2.",
    )
    threshold: Annotated[float, Field(gt=-1, le=1, allow_inf_nan=False)] = Field(
        description="The cosine similarity from which on two clusters are one. There is no default, as it differs from "
        "model to model."
    )
    linkage: Linkage = Field(
        default="complete",
        description="How similar two clusters are: as their least similar texts (`complete`), so that any two of a "
        "class are as similar as the threshold, or as all pairs on average (`average`).",
    )
    prefix: str = Field(
        default="", description='Text before every answer, where the model was trained with one: "query: " for E5.'
    )
    revision: str | None = Field(default=None, description="The hub's revision of the model; null: the newest.")

    def check_machine(self) -> None:
        """Loads the model."""
        super().check_machine()
        encoder(self.model, self.revision)

    def compared(self, texts: Sequence[str], row: Row) -> list[int]:
        """Raises ConfigError where the model or its libraries are missing, GraderError where it gives no vector."""
        vectors = encoder(self.model, self.revision).vectors([self.prefix + text for text in texts])
        return clusters(vectors, self.threshold, self.linkage)
