"""A small policy under OpenRLHF's strategy and trainer, and rollouts to train it on, for tests in a process apart.

The rollouts are those of the shipped gradient case (restrain_openrlhf/commands/gpu_check/gradient.py).
"""

from types import SimpleNamespace

from restrain_openrlhf.commands.gpu_check.gradient import (
    BETA,
    CLIP,
    GROUP_SIZE,
    GROUPS,
    GradientCase,
    _experience,
)


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

    from restrain_openrlhf.config.host_flags import parse, to_arguments

    every = {
        "rollout.batch_size": len(GROUPS),
        "rollout.n_samples_per_prompt": GROUP_SIZE,
        "train.batch_size": GROUP_SIZE * len(GROUPS),
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


def make_case(policy):
    """An Experience as it reaches training_step, with log-probabilities of an old and a reference policy."""
    experience, _ = _experience(policy, GradientCase())
    old, base = experience.action_log_probs, experience.base_action_log_probs
    return SimpleNamespace(experience=experience, old=old, base=base, mask=experience.action_mask)


def label_terms():
    """For each rollout its A_ij and w_j, by the naive double loop."""
    from tests.method.naive import advantages_by_label, soft_weights

    for classes in GROUPS:
        counts = [sum(label == j for label in classes) for j in range(max(c for c in classes if c is not None) + 1)]
        yield from ((row, soft_weights(counts, GROUP_SIZE, 0.5, 1.0)) for row in advantages_by_label(classes))


def clipped(torch, ratio, advantage):
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)


def weigh_labels(torch, ratio):
    return torch.stack(
        [
            sum(float(w) * clipped(torch, ratio[i], float(a)) for a, w in zip(*terms, strict=True))
            for i, terms in enumerate(label_terms())
        ]
    )
