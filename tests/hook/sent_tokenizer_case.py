"""In a process of its own: a tokenizer goes through a real Ray to an actor by our dispatch, and is compared there."""

from types import SimpleNamespace

import ray
from openrlhf.utils.utils import get_tokenizer

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.hook.rollout.samples import tokenizer_by_reference, tokenizer_here

TEMPLATE = "{% for message in messages %}<{{ message['content'] }}>{% endfor %}"
TEXT = "12+34="


def seen(tokenizer):
    """What a rollout reads of it, and what may be set on it."""
    return {
        "ids": tokenizer(text=TEXT, add_special_tokens=False, return_tensors="pt")["input_ids"].tolist(),
        "text": tokenizer.decode([1, 2, 3], skip_special_tokens=True),
        "chat": tokenizer.apply_chat_template([{"role": "user", "content": TEXT}], tokenize=False),
        "special": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "padding": (tokenizer.padding_side, tokenizer.pad_token, tokenizer.pad_token_id),
        "set by hand": tokenizer.of_this_run,
    }


@ray.remote
class Rollouts:
    """An asynchronous actor, as the host's rollout actor is."""

    async def generate_responses(self, hf_tokenizer):
        tokenizer = await tokenizer_here(hf_tokenizer)
        return id(tokenizer), seen(tokenizer)


def main():
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    tokenizer = get_tokenizer(str(ADDITION.model), None, "left")
    tokenizer.chat_template, tokenizer.of_this_run = TEMPLATE, "kept"
    generator, actor = SimpleNamespace(tokenizer=tokenizer), Rollouts.remote()
    calls = []
    for _ in range(3):
        with tokenizer_by_reference(generator):
            calls.append(actor.generate_responses.remote(generator.tokenizer))
    arrived = ray.get(calls)
    assert generator.tokenizer is tokenizer
    assert len({each for each, _ in arrived}) == 1, "one object for all prompts"
    assert [found for _, found in arrived] == [seen(tokenizer)] * 3


if __name__ == "__main__":
    main()
