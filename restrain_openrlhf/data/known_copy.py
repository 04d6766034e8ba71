"""Whether a set of prompts is the copy that is known: its count and its digest, beside those of the known copy."""

from pydantic import BaseModel, ConfigDict


class CopyCheck(BaseModel):
    """A set's own count and digest (`identity.set_digest` of its prompts), and the known copy's; None: none is known.

    It is of the whole set without equal prompts, before near-duplicates are dropped or its first prompts are taken.
    """

    model_config = ConfigDict(frozen=True)

    count: int
    digest: str
    known_count: int | None
    known_digest: str | None

    @property
    def is_known(self) -> bool | None:
        """None where no digest is known to compare with."""
        return None if self.known_digest is None else self.digest == self.known_digest

    def verdict(self, name: str) -> str:
        """One sentence: the copy known, another one with both numbers and digests, or none to compare with."""
        if self.is_known is None:
            return f"{name}: no copy of it is known, so its digest is compared with none."
        if self.is_known:
            return f"{name}: this is the copy known, {self.count:,} prompts, digest {self.digest}."
        known = "" if self.known_count is None else f"{self.known_count:,} prompts, "
        return (
            f"{name}: this is another copy than the one known. This one: {self.count:,} prompts, digest "
            f"{self.digest}. The known one: {known}digest {self.known_digest}. Figures from the two may not be "
            "comparable."
        )
