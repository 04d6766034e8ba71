"""The prompts and the provenance of a toy pass. Processes of tests import it, so it imports nothing that is slow."""

import pytest

from restrain_openrlhf.answers.extract import EXTRACTOR_VERSION
from restrain_openrlhf.reference import ReferenceProvenance, ReferenceRow
from restrain_openrlhf.reference.prompts import Prompt, prompt_set_hash


def prompts(count):
    return [Prompt(id=i, problem=f"{i}+1=", text=f"Q {i}+1=", where=f"line {i + 1}") for i in range(count)]


def provenance(everything, **changes):
    made = ReferenceProvenance(
        model="m",
        model_fingerprint="folder:1",
        template="none",
        prompt_set_hash=prompt_set_hash(map(ReferenceRow.key_of, everything)),
        prompt_count=len(everything),
        n=4,
        temperature=1.0,
        top_p=1.0,
        max_new_tokens=8,
        max_len=32,
        seed=1,
        extractor_version=EXTRACTOR_VERSION,
        restrain_version="0",
    )
    return made.model_copy(update=changes)


def word_tokenizer(*words, chat_template=None):
    """A real tokenizer of these words, behind an unknown one and a mark that begins texts."""
    transformers = pytest.importorskip("transformers", reason="needs the training stack: make install")
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: place for place, word in enumerate(("<unk>", "<s>", *words))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>")
    fast.chat_template = chat_template
    return fast


def look_up(reference, prompts):
    """Each prompt's row, as preflight looks it up before a run."""
    return [reference.row(prompt.text, prompt.where, prompt.row) for prompt in prompts]
