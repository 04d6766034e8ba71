"""A program: a real step whose old log-probabilities are its own, beside one with those of the host's pass.

For each case of the arguments, as gpu-check's gradient program takes them, prints as JSON how far the gradient of each
step is from the paper's, what the first found of the gap beside what the host's pass would have given, and whether a
lower limit stops the step before DeepSpeed's optimizer takes one.
"""

import json
import math
import sys
from dataclasses import asdict

import torch

from restrain_openrlhf.commands.gpu_check import gradient, host_step
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.errors import PolicyMismatchError
from restrain_openrlhf.hook.install.environment import os, to_environment
from restrain_openrlhf.hook.policy.experience import GAP_OF_STEP, PLACE, step_gap
from restrain_openrlhf.method import parse_settings
from restrain_openrlhf.method.papers_loss import PapersLoss
from tests.hook.one_step_old_case import log_probs_of

FORMULA = PapersLoss(gradient.GROUPS, gradient.PROMPT_WEIGHTS, gradient.BETA, gradient.CLIP)


def prepared(case, own, limit):
    """A policy, its trainer, and rollouts with made-up log-probabilities in the place of vLLM's."""
    os.environ |= to_environment(
        HookConfig(method=parse_settings({"name": "ttrl"}), own_old_log_probs=own, logprob_gap_limit=limit)
    )
    plain, trainer = gradient._prepare(case)
    rollouts, _ = gradient._experience(plain, case)
    rollouts.action_log_probs = log_probs_of(plain, rollouts)
    noise = torch.randn(rollouts.action_mask.shape, generator=torch.Generator().manual_seed(2))
    rollouts.rollout_log_probs = rollouts.action_log_probs + 0.1 * noise
    return plain, trainer, rollouts


def stepped(trainer, rollouts, own):
    if own:
        rollouts.info[PLACE] = torch.arange(gradient.ROLLOUTS)
        rollouts.action_log_probs = torch.full_like(rollouts.action_log_probs, math.nan)
    trainer.replay_buffer.append(rollouts)
    status = trainer.ppo_train(gradient.BETA)
    return host_step.used_gradient(trainer.actor.model), status


def measure(case):
    plain, trainer, rollouts = prepared(case, own=False, limit=None)
    paper = gradient._direct(plain, rollouts, FORMULA)
    rollouts.index = [*range(gradient.ROLLOUTS)]
    passed = step_gap([rollouts])
    theirs, _ = stepped(trainer, rollouts, own=False)
    _, trainer, rollouts = prepared(case, own=True, limit=None)
    ours, status = stepped(trainer, rollouts, own=True)
    found = status.pop(GAP_OF_STEP)
    return {
        "theirs": float((theirs - paper).norm() / paper.norm()),
        "ours": float((ours - paper).norm() / paper.norm()),
        "gaps": [asdict(each.sums) for each in (found, passed)],
        "rollouts": [[each.rollouts[place] for place in range(gradient.ROLLOUTS)] for each in (found, passed)],
        "logged": [name for name, value in status.items() if PLACE in name or not math.isfinite(value)],
        **refused(case, passed.sums),
    }


def refused(case, sums):
    """Of a limit that is just below the gap."""
    _, trainer, rollouts = prepared(case, own=True, limit=sums.apart / sums.size * 0.99)
    try:
        stepped(trainer, rollouts, own=True)
    except PolicyMismatchError as error:
        return {"stopped": str(error), "optimizer_steps": trainer.actor.model.global_steps}
    return {"stopped": "", "optimizer_steps": trainer.actor.model.global_steps}


if __name__ == "__main__":
    host_step.prepare_process()
    for word in sys.argv[1:]:
        print(json.dumps(measure(gradient.GradientCase(**json.loads(word)))))
