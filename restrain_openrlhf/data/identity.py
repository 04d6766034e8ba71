"""Identity of a text and of a set of texts, by which files that belong together find each other."""

import hashlib
from collections.abc import Iterable


def text_hash(text: str) -> str:
    """Identity of a prompt or a problem: SHA-256 of its UTF-8 text, in hex."""
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def set_digest(texts: Iterable[str]) -> str:
    """Identity of a set of texts, whatever their order: SHA-256 over their sorted hashes, in hex."""
    return hashlib.sha256("\n".join(sorted(text_hash(text) for text in texts)).encode()).hexdigest()
