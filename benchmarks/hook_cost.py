"""What the hook adds to a training step: OpenRLHF's own optimizer pass with stock GRPO and with RESTRAIN, in turn.

One process, DeepSpeed, 512 rollouts of a model that --hidden and --layers size. Generation and the log-probability
passes, which the hook does not touch, are left out, so that the shares printed are upper bounds for a whole step.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from rich.console import Console
from rich.progress import track

from restrain_openrlhf.commands.gpu_check.host_step import policy_of, prepare_process, strategy_of, trainer_of

PROMPTS, N, MICRO = 32, 16, 32
PROMPT_TOKENS, RESPONSE_TOKENS = 8, 32
REPEATS = 7


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser()
    options.add_argument("--hidden", type=int, default=256)
    options.add_argument("--layers", type=int, default=4)
    sizes = options.parse_args()
    prepare_process()
    stock_trainer, hooked_trainer, experiences = prepare(sizes.hidden, sizes.layers)
    stock_step = partial(vars(type(stock_trainer))["training_step"].__wrapped__, stock_trainer)
    stock, hooked, scoring, means = [], [], [], []
    for _ in track(range(REPEATS + 1), "measuring"):
        stock.append(optimizer_pass(stock_step, experiences(hooked=False)))
        hooked.append(optimizer_pass(hooked_trainer.training_step, experiences(hooked=True)))
        scoring.append(score_groups())
        means.append(token_means(hooked_trainer.actor_loss_fn.batch))
    # The first of each warms up.
    stock, hooked, scoring, means = (seconds[1:] for seconds in (stock, hooked, scoring, means))
    base = statistics.median(stock)
    difference = statistics.median(b - a for a, b in zip(stock, hooked, strict=True))
    Console().print(
        f"stock optimizer pass over {PROMPTS * N} rollouts: {base:.2f} s (median of {REPEATS})\n"
        f"paired loss, weighted KL and token means: {difference / base:+.2%} of it "
        f"(single repeats: {', '.join(f'{(b - a) / a:+.1%}' for a, b in zip(stock, hooked, strict=True))})\n"
        f"of which token means: {statistics.median(means) / base:.3%} of it\n"
        f"decoding, extraction, votes and advantages: {statistics.median(scoring) / base:.2%} of it"
    )


def prepare(hidden: int, layers: int) -> Any:
    """Two trainers over one model, the host's and the hooked one, and a maker of micro-batches."""
    import torch
    from openrlhf.utils.config import hierarchize
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from restrain_openrlhf.config.host_flags import parse, to_arguments
    from restrain_openrlhf.hook.policy.token_means import TokenSums

    flags = {
        "train.batch_size": PROMPTS * N,
        "train.micro_batch_size": MICRO,
        "algo.advantage.estimator": "group_norm",
        "algo.kl.use_loss": True,
        "algo.kl.estimator": "k3",
        "algo.kl.init_coef": 0.001,
        "ds.zero_stage": 0,
    }
    args = hierarchize(parse(to_arguments(flags)))
    args.actor.eps_clip_low_high = (0.2, 0.2)
    strategy = strategy_of(args)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(vocab_size=2048, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
                    num_attention_heads=4, num_key_value_heads=2, head_dim=hidden // 4)
    ).bfloat16()  # fmt: skip
    hooked = trainer_of(strategy, policy_of(model, args), args)
    # As the hook's ppo_train begins a step.
    hooked.restrain_sums = TokenSums()
    parts = (strategy, hooked.actor, None, hooked.actor_optim, hooked.actor_scheduler)
    stock = type(hooked)(*parts, micro_train_batch_size=MICRO)
    return stock, hooked, lambda hooked: [micro_batch(torch, hooked) for _ in range(PROMPTS * N // MICRO)]


def micro_batch(torch: Any, hooked: bool) -> Any:
    """One micro-batch as it reaches training_step: on the device, where the host has put it (ppo_train)."""
    from openrlhf.trainer.ppo_utils.experience import Experience

    length = PROMPT_TOKENS + RESPONSE_TOKENS
    sequences = torch.randint(3, 2048, (MICRO, length))
    mask = torch.zeros(MICRO, length - 1)
    mask[:, PROMPT_TOKENS - 1 :] = 1
    columns = ("restrain/advantage_pos", "restrain/advantage_neg", "restrain/kl_weight")
    experience = Experience(
        sequences=sequences,
        attention_mask=torch.ones_like(sequences),
        action_mask=mask,
        action_log_probs=torch.full((MICRO, length - 1), -7.6),
        base_action_log_probs=torch.full((MICRO, length - 1), -7.6),
        advantages=None if hooked else torch.randn(MICRO, length - 1),
        info={name: list(torch.rand(MICRO)) for name in columns} if hooked else {},
    )
    return experience.to_device(torch.cuda.current_device())


def optimizer_pass(training_step: Callable[..., Any], experiences: list[Any]) -> float:
    """Seconds of one optimizer step's micro-batches through this training_step, its kernels' end included."""
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    for step, experience in enumerate(experiences):
        training_step(experience, 0.001, step, None)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def token_means(loss_batch: dict[str, Any]) -> float:
    """Seconds of the sums over as many micro-batches as that pass has, and of their means."""
    import torch

    from restrain_openrlhf.hook.policy.token_means import LossBatch, TokenSums

    metrics = {name: torch.rand(()) for name in ("policy_loss", "entropy_loss", "ppo_clip_ratio")}
    kl = torch.rand(loss_batch["action_mask"].shape)
    start = time.perf_counter()
    sums = TokenSums()
    for _ in range(PROMPTS * N // MICRO):
        sums.add_micro_batch(metrics, LossBatch.of(loss_batch, token_level=True), kl)
    sums.over_ranks()
    return time.perf_counter() - start


def score_groups() -> float:
    """Seconds of scoring the same number of rollouts in groups, and of counting the step's votes."""
    import torch

    from restrain_openrlhf.hook.rollout.group_columns import GENERATED, MAJORITY, columns, majority_digest, take_votes
    from restrain_openrlhf.method import build, parse_settings
    from restrain_openrlhf.scoring import GroupScorer, score_whole_group
    from restrain_openrlhf.scoring.wire import GroupRequest

    scorer = GroupScorer(build(parse_settings({"name": "restrain", "prompt_weight": "online"})))
    texts = [f"some steps of scratch \\boxed{{{index % 5}}}" for index in range(N)]
    start = time.perf_counter()
    samples = []
    for prompt in map(str, range(PROMPTS)):
        group = GroupRequest(prompt=prompt, responses=[{"text": text, "finished": True} for text in texts])
        reply = score_whole_group(scorer, group)
        digest = majority_digest(reply.majority_key)
        rows = [{**row, MAJORITY: digest, GENERATED: 1000} for row in columns(group, reply)]
        infos = [{name: torch.tensor([value]) for name, value in row.items()} for row in rows]
        samples += [SimpleNamespace(prompts=[prompt], info=info) for info in infos]
    take_votes(samples, N)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
