"""One step of RESTRAIN with torch alone: from 16 responses to one prompt to the gradient of the policy."""

import torch

from restrain_openrlhf.answers import classes, extract
from restrain_openrlhf.method import GroupScore, PromptFacts, ReferenceVote, build, parse_settings

ANSWERS = ["12"] * 5 + ["6+6"] * 2 + ["14"] * 4 + ["21"] * 2 + ["6", "8"]
RESPONSES = [rf"3 times 4 is \boxed{{{answer}}}." for answer in ANSWERS] + ["I give up."]
FROZEN = ReferenceVote(majority_count=9, n=16)
CLIP, BETA = 0.2, 0.01


def score(responses: list[str]) -> GroupScore:
    """Answers, votes, w_j (eq. 3), the pair A⁺ and A⁻ or the penalty (eq. 4), u_x (eq. 5); u_x is in the pair."""
    restrain = build(parse_settings({"name": "restrain", "sigma": 0.5, "kappa": 3, "delta": 1.0}))
    return restrain.score(classes([extract(response) for response in responses]), PromptFacts(reference=FROZEN))


def log_probs(policy: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Of each character after the one before it, (n, T): the policy is a table of logits, (128, 128)."""
    return policy.log_softmax(-1)[tokens[:, :-1], tokens[:, 1:]]


def clipped(ratio: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """PPO's loss of each token, (n, T)."""
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)


def step(responses: list[str]) -> tuple[GroupScore, list[torch.Tensor], torch.Tensor]:
    """The group, what the loss was made of (policy, tokens, old, base, mask), and the gradient."""
    group = score(responses)
    rows = [torch.tensor([0, *response.encode()]) for response in responses]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    policy, *noise = torch.randn(3, 128, 128, generator=torch.manual_seed(0), dtype=torch.float64)
    new = log_probs(policy.requires_grad_(), tokens)
    old, base = (log_probs(policy.detach() + 0.3 * apart, tokens) for apart in noise)
    mask, ratio = (tokens[:, 1:] != 0).double(), (new - old).exp()
    # The loss of all labels is exactly that of two advantages (eq. 6 and 7); u_x is in them, and times the KL term.
    positive, negative = (torch.tensor(part)[:, None] for part in (group.pair.positive, group.pair.negative))
    kl = (base - new).exp() - 1 - (base - new)
    per_token = clipped(ratio, positive) + clipped(ratio, negative) + group.kl_weight * BETA * kl
    (gradient,) = torch.autograd.grad((per_token * mask).sum() / mask.sum(), policy)
    return group, [policy, tokens, old, base, mask], gradient


if __name__ == "__main__":
    scored, _, slope = step(RESPONSES)
    print(f"u_x {scored.prompt_weight:.3f}, penalised: {scored.penalized:.0%}, |gradient| {slope.norm():.4f}")
    print("answer  votes  weight       A+       A-")
    for label, count in enumerate(scored.votes.counts):
        first = scored.votes.classes.index(label)
        pair = f"{scored.pair.positive[first]:+9.3f}{scored.pair.negative[first]:+9.3f}"
        print(f"{extract(RESPONSES[first]):6}  {count:5}  {scored.label_weights[label]:6.3f}{pair}")
