"""The tokenizer of the demo's models: a token per printable character, and one for `\\boxed{`."""

import string
from typing import Any

SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>")
BOX = r"\boxed{"
VOCABULARY = (*SPECIAL, BOX, *(character for character in string.printable if character not in "\r\x0b\x0c"))
PAD, EOS, BOS = (SPECIAL.index(name) for name in ("<pad>", "<eos>", "<bos>"))


def make_tokenizer() -> Any:
    """A Hugging Face fast tokenizer; text that is not printable ASCII becomes <unk>."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    ids = {token: number for number, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\\boxed\{|[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **names)
