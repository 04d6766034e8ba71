"""A program: the gradient of a real step whose rollouts are one step old, as `train.async_enable` makes them.

A first step takes the policy from the one that drew the rollouts to the one that trains on them. The host's trainer
computes the log-probabilities that it calls old by the latter; vLLM's, of the former, come with the rollouts. For each
`CORRECTION` of the arguments, `off` or `token`, prints as JSON how far the second step's gradient is from two formulas,
relative to the gradient's norm: the paper's, with its importance ratio against the policy that drew and without a clip,
and the paper's as if the rollouts were new.
"""

import copy
import json
import sys
from dataclasses import replace

import torch

from restrain_openrlhf.commands.gpu_check import gradient, host_step
from restrain_openrlhf.method.papers_loss import PapersLoss

CASE = gradient.GradientCase(batching="micro-batches")
# Far enough that the two policies can be told apart, and a band that leaves out no token.
LEARNING_RATE, BAND = 0.01, [0.0, 1000.0]
UNCLIPPED = 1e9


def log_probs_of(policy, rollouts):
    with torch.no_grad():
        logits = policy.model(rollouts.sequences, attention_mask=rollouts.attention_mask).logits[:, :-1].float()
    return logits.log_softmax(-1).gather(-1, rollouts.sequences[:, 1:, None])[..., 0] * rollouts.action_mask


def measure(correction):
    args = gradient._arguments(CASE)
    args.actor.adam.lr = LEARNING_RATE
    args.algo.advantage.is_correction_level, args.algo.advantage.is_correction_threshold = correction, BAND
    strategy = host_step.strategy_of(args)
    torch.manual_seed(0)
    model = host_step.small_model(args, gradient.VOCABULARY, False)
    plain = host_step.policy_of(copy.deepcopy(model), args)
    trainer = host_step.trainer_of(strategy, host_step.policy_of(model, args), args)

    def step(rollouts):
        trainer.replay_buffer.clear()
        trainer.replay_buffer.append(rollouts)
        trainer.ppo_train(gradient.BETA)
        return host_step.used_gradient(trainer.actor.model) * (1 - host_step.BETA_1)

    other, rollouts = (gradient._experience(plain, CASE)[0] for _ in range(2))
    drew, other.rollout_log_probs = log_probs_of(plain, rollouts), other.action_log_probs
    before = step(other)
    plain.model.load_state_dict(trainer.actor.model.module.state_dict())
    trains = log_probs_of(plain, rollouts)
    rollouts.rollout_log_probs, rollouts.action_log_probs, rollouts.base_action_log_probs = drew, trains, drew
    formula = PapersLoss(gradient.GROUPS, gradient.PROMPT_WEIGHTS, gradient.BETA, gradient.CLIP)
    as_new = gradient._direct(plain, rollouts, formula)
    rollouts.action_log_probs = drew
    papers = gradient._direct(plain, rollouts, replace(formula, clip=UNCLIPPED))
    rollouts.action_log_probs = trains
    used = (step(rollouts) - host_step.BETA_1 * before) / (1 - host_step.BETA_1)
    ratios = (trains - drew).exp()[rollouts.action_mask.bool()]
    return {
        "from_papers": float((used - papers).norm() / papers.norm()),
        "from_as_new": float((used - as_new).norm() / as_new.norm()),
        "furthest_ratio": float((ratios - 1).abs().max()),
    }


if __name__ == "__main__":
    host_step.prepare_process()
    for word in sys.argv[1:]:
        print(json.dumps(measure(word)))
