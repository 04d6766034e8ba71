"""A small offline pass of the frozen model, as `restrain reference` leaves it."""

from restrain_openrlhf.answers.extract import EXTRACTOR_VERSION
from restrain_openrlhf.reference import ReferenceProvenance, ReferenceRow
from restrain_openrlhf.reference.prompts import Prompt, prompt_set_hash


def write_reference(path, answers):
    """Write the votes on prompts (text: the frozen model's answers, equally many each); returns the path."""
    prompts = [Prompt(index, text, text, f"line {index}") for index, text in enumerate(answers)]
    rows = [ReferenceRow.of_answers(prompt, answers[prompt.text]) for prompt in prompts]
    path.write_text("".join(row.model_dump_json() + "\n" for row in rows))
    (n,) = {len(votes) for votes in answers.values()}
    made = ReferenceProvenance(
        model="m", model_fingerprint="f", template="none",
        prompt_set_hash=prompt_set_hash(map(ReferenceRow.key_of, prompts)),
        prompt_count=len(prompts), n=n, temperature=1.0, top_p=1.0, max_new_tokens=40, max_len=64, seed=1,
        extractor_version=EXTRACTOR_VERSION, restrain_version="0",
    )  # fmt: skip
    made.write(path)
    return path
