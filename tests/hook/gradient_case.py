"""One real training step of OpenRLHF's ActorPPOTrainer under DeepSpeed, against the paper's pseudo-code.

Run as a program: prints, as JSON, how far gradients are apart for each actor.loss_agg_mode named. Two prompts of six
rollouts, five labels and a missing answer between them; the old policy is far enough away that ratios clip on both
sides.
"""

import copy
import json
import os
import sys
from types import SimpleNamespace

from wrapt import FunctionWrapper

from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.hook.instrument import install
from restrain_openrlhf.hook.patches import PATCHES, load

GROUPS = ([0, 0, 0, 1, 2, None], [0, 0, 0, 0, 1, 1])
PROMPT_WEIGHTS = (0.6, 0.9)
N, PROMPT_TOKENS, RESPONSE_TOKENS = 6, 4, 7
BETA = 0.1
CLIP = 0.2


def main(agg_mode: str) -> dict[str, float]:
    detect().install()
    install()
    import torch

    rollouts = N * len(GROUPS)
    flags = {"train.micro_batch_size": rollouts, "actor.loss_agg_mode": agg_mode}
    model = small_model(torch)
    # DeepSpeed wants all backward passes to itself: the paper's loss is differentiated on a copy.
    plain = plain_policy(copy.deepcopy(model))
    strategy, actor, trainer = host_trainer(model, flags)
    strategy.optimizer_step = lambda *_, **__: None
    strategy.get_grad_norm = lambda _model: 0.0

    case = make_case(torch, actor)
    trainer.training_step(case.experience, BETA, 0, None)
    hooked = gradient(torch, actor.model.module)
    paper = direct_gradient(torch, plain, case, agg_mode, weigh_labels)
    net = direct_gradient(torch, plain, case, agg_mode, single_net_advantage)
    ones = torch.ones_like(case.mask[:, 0])
    unweighted_kl = direct_gradient(torch, plain, case, agg_mode, weigh_labels, kl_weights=ones)
    return {
        "hooked": relative(hooked, paper),
        "net": relative(net, paper),
        "kl_without_prompt_weight": relative(unweighted_kl, paper),
        "clipped_share": case.clipped_share,
    }


def small_model(torch):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(vocab_size=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                    num_key_value_heads=2, head_dim=16, tie_word_embeddings=False, use_cache=False)
    )  # fmt: skip


def plain_policy(model, packed=False):
    """The host's policy around the model, without DeepSpeed."""
    from openrlhf.models import Actor

    policy = Actor(model)
    policy.packing_samples, policy.temperature = packed, 1.0
    return policy


def host_trainer(model, flags):
    """OpenRLHF's strategy, policy and trainer around the model, in the process group that the environment names."""
    from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer
    from openrlhf.utils import get_strategy
    from openrlhf.utils.config import hierarchize

    from restrain_openrlhf.hook.host_flags import parse, to_arguments

    every = {
        "rollout.batch_size": len(GROUPS),
        "rollout.n_samples_per_prompt": N,
        "train.batch_size": N * len(GROUPS),
        "algo.advantage.estimator": "group_norm",
        "algo.kl.use_loss": True,
        "algo.kl.estimator": "k3",
        "algo.kl.init_coef": BETA,
        "ds.zero_stage": 0,
        "actor.max_norm": 0.0,
        "actor.adam.lr": 1e-3,
        **flags,
    }
    args = hierarchize(parse(to_arguments(every)))
    args.actor.eps_clip_low_high = (CLIP, CLIP)
    args.ds.param_dtype = "fp32"
    strategy = get_strategy(args)
    strategy.setup_distributed()
    config = {
        "optim": "adam",
        "adam": {"lr": args.actor.adam.lr, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0},
        "lr_scheduler": "constant",
        "scheduler_steps": 10,
        "max_norm": 0.0,
    }
    policy = plain_policy(model, packed=args.ds.packing_samples)
    actor, optimizer, scheduler = strategy.prepare((policy, config))
    micro = args.train.micro_batch_size
    trainer = ActorPPOTrainer(
        strategy, actor, None, optimizer, scheduler, micro_train_batch_size=micro, dataloader_pin_memory=False
    )
    return strategy, actor, trainer


def not_patched() -> list[str]:
    """What of the hook's table is the host's own still, in this process that imported the host after the hook."""
    in_place = {patch: vars(owner)[name] for patch in PATCHES for owner, name in [patch.locate()]}
    return [
        patch.qualname
        for patch, method in in_place.items()
        if not isinstance(method, FunctionWrapper) and method is not load(patch.ours)
    ]


def make_case(torch, actor):
    """An Experience as it reaches training_step, with log-probabilities of an old and a reference policy."""
    from openrlhf.trainer.ppo_utils.experience import Experience

    from restrain_openrlhf.hook.group_columns import TRAINED_ON, columns
    from restrain_openrlhf.method import build, parse_settings
    from restrain_openrlhf.reward.whole_group import score_whole_group
    from restrain_openrlhf.reward.wire import GroupRequest
    from restrain_openrlhf.scoring import GroupScorer

    rollouts, length = N * len(GROUPS), PROMPT_TOKENS + RESPONSE_TOKENS
    generator = torch.Generator().manual_seed(1)
    # Drawn on the CPU, so that the case is the same one everywhere; the host's kernels want it where the model is.
    device = torch.cuda.current_device()
    sequences = torch.randint(3, 32, (rollouts, length), generator=generator).to(device)
    attention = torch.ones_like(sequences)
    mask = torch.zeros(rollouts, length - 1, device=device)
    for row in range(rollouts):
        mask[row, PROMPT_TOKENS - 1 : length - 1 - row % 4] = 1
    with torch.no_grad():
        current = actor(sequences, mask, attention)
    old = current + torch.randn(current.shape, generator=generator).to(device) * 0.5
    base = current + torch.randn(current.shape, generator=generator).to(device) * 0.5
    rows = []
    for classes, weight in zip(GROUPS, PROMPT_WEIGHTS, strict=True):
        method = build(parse_settings({"name": "restrain", "kappa": 2, "prompt_weight": weight}))
        texts = ["none" if label is None else rf"\boxed{{{label}}}" for label in classes]
        group = GroupRequest(prompt="x", responses=[{"text": text, "finished": True} for text in texts])
        rows += columns(group, score_whole_group(GroupScorer(method), group))
    info = {name: [torch.tensor([row[name]], device=device)[0] for row in rows] for name in TRAINED_ON}
    experience = Experience(
        sequences=sequences,
        attention_mask=attention,
        action_mask=mask,
        action_log_probs=old,
        base_action_log_probs=base,
        advantages=None,
        info=info,
    )
    ratio = (current - old).exp()[mask.bool()]
    clipped = ((ratio < 1 - CLIP) | (ratio > 1 + CLIP)).float().mean().item()
    return SimpleNamespace(experience=experience, old=old, base=base, mask=mask, clipped_share=clipped)


def direct_gradient(torch, policy, case, agg_mode, policy_loss, kl_weights=None):
    """Differentiate u_x (sum_j w_j loss_j + beta KL) as the paper writes it."""
    policy.model.zero_grad()
    log_probs = policy(case.experience.sequences, case.mask, case.experience.attention_mask)
    ratio = (log_probs - case.old).exp()
    prompt_weights = torch.tensor(PROMPT_WEIGHTS, device=log_probs.device).repeat_interleave(N)
    difference = case.base - log_probs
    kl = difference.exp() - 1 - difference
    per_token = prompt_weights[:, None] * policy_loss(torch, ratio)
    if agg_mode == "token-mean":
        loss = (per_token * case.mask).sum() / case.mask.sum()
    else:
        loss = ((per_token * case.mask).sum(1) / case.mask.sum(1)).mean()
    # The host takes the mean of KL over tokens, whatever actor.loss_agg_mode says (trainer/ray/ppo_actor.py).
    weighted_kl = (prompt_weights if kl_weights is None else kl_weights)[:, None] * BETA * kl
    loss = loss + (weighted_kl * case.mask).sum() / case.mask.sum()
    loss.backward()
    return gradient(torch, policy.model)


def label_terms():
    """For each rollout its A_ij and w_j, by the naive double loop."""
    from tests.method.naive import advantages_by_label, soft_weights

    for classes in GROUPS:
        counts = [sum(label == j for label in classes) for j in range(max(c for c in classes if c is not None) + 1)]
        yield from ((row, soft_weights(counts, N, 0.5, 1.0)) for row in advantages_by_label(classes))


def clipped(torch, ratio, advantage):
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)


def weigh_labels(torch, ratio):
    return torch.stack(
        [
            sum(float(w) * clipped(torch, ratio[i], float(a)) for a, w in zip(*terms, strict=True))
            for i, terms in enumerate(label_terms())
        ]
    )


def single_net_advantage(torch, ratio):
    return torch.stack(
        [clipped(torch, ratio[i], float(row @ weights)) for i, (row, weights) in enumerate(label_terms())]
    )


def gradient(torch, model):
    return torch.cat([parameter.grad.flatten().double().cpu() for parameter in model.parameters()])


def relative(one, other) -> float:
    return float((one - other).norm() / other.norm())


if __name__ == "__main__":
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ["MASTER_PORT"] = sys.argv[1]
    print(json.dumps({agg_mode: main(agg_mode) for agg_mode in sys.argv[2:]} | {"not_patched": not_patched()}))
