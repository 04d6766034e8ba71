"""Reference files as their two texts, written by hand: what somebody else's pass, or an old one, may look like."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from restrain_openrlhf.answers.extract import EXTRACTOR_VERSION


def line(prompt: str, answers: Sequence[str], **changes: object) -> str:
    """The row of a prompt without a template; the first answer is the majority's."""
    digest = hashlib.sha256(prompt.encode()).hexdigest()
    count = sum(answer == answers[0] for answer in answers)
    row = {"id": 1, "prompt_hash": digest, "problem_hash": digest, "n": len(answers), "answers": list(answers)}
    rest = [count, len(answers) - count] if count < len(answers) else [count]
    vote = {"counts": rest, "majority": answers[0], "majority_count": count, "majority_share": count / len(answers)}
    labels = {"classes": [int(answer != answers[0]) for answer in answers], "keys": list(dict.fromkeys(answers))}
    return json.dumps({**row, **vote, **labels, "missing_share": 0.0, **changes}) + "\n"


def write(path: Path, lines: Sequence[str], **made: object) -> Path:
    """The file and its provenance, of a run that draws 16 rollouts of 40 new tokens at T = 1; `made` is other."""
    as_wanted: Mapping[str, object] = {
        "model": "m",
        "model_fingerprint": "folder:1",
        "template": "none",
        "prompt_set_hash": "h",
        "prompt_count": len(lines),
        "n": 16,
        "temperature": 1.0,
        "top_p": 1.0,
        "max_new_tokens": 40,
        "max_len": 64,
        "seed": 1,
        "extractor_version": EXTRACTOR_VERSION,
        "restrain_version": "0",
    }
    path.write_text("".join(lines))
    path.with_name(path.name + ".provenance.json").write_text(json.dumps({**as_wanted, **made}))
    return path
