"""Groups are checked by identity; answers, truncation and gold are read off the host's Experience."""

import pytest

torch = pytest.importorskip("torch", reason="needs the training stack: make install")
pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.devices import detect  # noqa: E402

detect().install()

from openrlhf.trainer.ppo_utils.experience import Experience  # noqa: E402

from restrain_openrlhf.errors import GroupError  # noqa: E402
from restrain_openrlhf.hook.groups import group_rollouts, response_tokens  # noqa: E402


class Letters:
    """Token i is the character chr(i)."""

    def batch_decode(self, sequences, skip_special_tokens):
        assert skip_special_tokens
        return ["".join(map(chr, ids)) for ids in sequences]


def rollout(prompt, response, truncated=False, label=""):
    tokens = torch.tensor([[ord(letter) for letter in prompt + response]])
    mask = torch.zeros(1, tokens.shape[1] - 1)
    mask[:, len(prompt) - 1 :] = 1
    return Experience(
        sequences=tokens,
        attention_mask=torch.ones_like(tokens),
        action_mask=mask,
        prompts=[prompt],
        labels=[label],
        truncated=torch.tensor([truncated]),
        info={},
    )


def test_the_response_is_what_the_mask_marks():
    assert bytes(response_tokens(rollout("1+1=", r"\boxed{2}"))).decode() == r"\boxed{2}"


def test_rollouts_become_groups_with_answers():
    samples = [
        rollout("1+1=", r"\boxed{2}"),
        rollout("1+1=", r"\boxed{3}", truncated=True),
        rollout("2+2=", "no answer"),
        rollout("2+2=", r"\boxed{4}", label="4"),
    ]
    first, second = group_rollouts(samples, 2, Letters())
    assert (first.prompt, first.answers, first.truncated) == ("1+1=", ("2", None), (False, True))
    assert (second.prompt, second.answers, second.gold) == ("2+2=", (None, "4"), None)


def test_gold_is_the_label_of_the_group():
    (group,) = group_rollouts([rollout("1+1=", "x", label="2")] * 2, 2, Letters())
    assert group.gold == "2"


@pytest.mark.parametrize(
    ("prompts", "message"),
    [(("a=", "a=", "a="), "no multiple"), (("a=", "b=", "b=", "b="), "belong to 2 prompts"), ((), "0 rollouts")],
)
def test_what_is_no_group_is_refused(prompts, message):
    with pytest.raises(GroupError, match=message):
        group_rollouts([rollout(prompt, "x") for prompt in prompts], 2, Letters())
