"""Takes from a response what it says: neither the thoughts before that nor the chat template's marks after it."""

import re

# Qwen3 writes <think>…</think>, Seed-OSS <seed:think>, Magistral [THINK]. The templates of DeepSeek-R1's distillations
# put the beginning into the prompt. gpt-oss has channels; without special tokens they are decoded as
# `analysisWe add.assistantfinalThe answer is 4.`
_TAG = r"(?:(?:seed:)?think(?:ing)?|thought)>"
_BEGINNING = rf"<{_TAG}|\[THINK\]|<\|channel\|>(?:analysis|commentary)|\Aanalysis(?=[A-Z])"
_END = rf"</{_TAG}|\[/THINK\]|<\|channel\|>final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>|assistantfinal"
# A mark in a block of code, in inline code or in a string is only spoken of. An opening fence ends an unclosed block.
_QUOTED = (
    r"^```[^`\n]*\n(?:(?!.*```).*\n)*?```[ \t]*(?=$|<)"
    r"|(?<!`)`[^`\n]+`(?!`)|\"[^\"\n]*\"|(?<!\w)[bfru]{0,2}'[^'\n]*'(?!\w)"
)
_MARK = re.compile(rf"(?P<beginning>{_BEGINNING})|(?P<end>{_END})|{_QUOTED}", re.MULTILINE)
# One of these is in every text with a mark, and is found sooner.
_HINTS = ("think>", "thinking>", "thought>", "THINK]", "<|channel|>", "analysis", "assistantfinal")
_AFTER = re.compile(r"(?:(?:<\|[a-z_]+\|>|</s>|<｜end▁of▁sentence｜>|<end_of_turn>)\s*)+\Z")
# The length of the end in which the template's marks are looked for.
_TAIL = 200


def said(response: str) -> str | None:
    """What follows the last end of a thought; None if a thought begins and never ends. Accepts any text.

    If the prompt began the thought and the response was cut off, nothing in it tells the thought from an answer, but
    such a response is truncated.
    """
    start: int | None = 0
    for mark in _MARK.finditer(response) if any(hint in response for hint in _HINTS) else ():
        start = mark.end() if mark["end"] else None if mark["beginning"] else start
    if start is None:
        return None
    text = response[start:]
    return text[:-_TAIL] + _AFTER.sub("", text[-_TAIL:])
