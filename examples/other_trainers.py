"""The votes without OpenRLHF: a group scored in one line, and TRL's GRPOTrainer trained on votes alone.

python examples/other_trainers.py                  # the group; nothing but this package is needed
python examples/other_trainers.py --steps 40       # and trains the demo's model with TRL, on two cores in minutes
"""

import argparse
import tempfile
from typing import Any

from restrain_openrlhf import score
from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.data.demo_tasks.tasks import PREMISE

RESPONSES = [rf"3 times 4 is \boxed{{{answer}}}." for answer in [12] * 9 + ["6+6"] * 2 + [14] * 4] + ["I give up."]
METHOD = {"name": "restrain", "prompt_weight": "online"}
PROMPTS, N = 32, 16


def show_group() -> None:
    """One group's rows, as `pandas.DataFrame(score(RESPONSES).to_records())` has them."""
    for row in score(RESPONSES, method=METHOD).to_records():
        print(
            f"{row['answer']!s:>5} {row['votes']:3} votes, weight {row['label_weight']:.3f}, A {row['advantage']:+.3f}"
        )


def train(steps: int, seed: int, method: dict[str, Any]) -> None:
    """The demo's task: held-out pass@1 before and after; the training set has no answers."""
    import torch  # noqa: PLC0415 - the group needs neither
    from datasets import Dataset  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415
    from trl import GRPOConfig  # noqa: PLC0415

    from restrain_openrlhf.scoring.trl import VotesGRPOTrainer  # noqa: PLC0415

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(PREMISE.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(PREMISE.model, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            output_dir=folder,
            max_steps=steps,
            seed=seed,
            num_generations=N,
            max_completion_length=10,
            per_device_train_batch_size=PROMPTS * N,
            learning_rate=3e-4,
            lr_scheduler_type="constant",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            logging_steps=5,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        prompts = Dataset.from_list([{"prompt": problem.problem} for problem in PREMISE.training_set(PROMPTS * steps)])
        trainer = VotesGRPOTrainer(model, args=args, method=method, train_dataset=prompts, processing_class=tokenizer)
        print(f"held-out pass@1 before: {pass_at_1(model, tokenizer):.3f}", flush=True)
        trainer.train()
        print(f"held-out pass@1 after {steps} steps: {pass_at_1(model, tokenizer):.3f}")


def pass_at_1(model: Any, tokenizer: Any, problems: int = 300, n: int = 8) -> float:
    """The mean over held-out problems with n rollouts each, at temperature 1, graded as by `restrain eval`."""
    import torch  # noqa: PLC0415

    asked = PREMISE.heldout_problems(problems)
    encoded = tokenizer([problem.problem for problem in asked], return_tensors="pt", padding=True)
    encoded = {name: encoded[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        drawn = model.generate(
            **encoded, do_sample=True, top_k=0, top_p=1.0, temperature=1.0, max_new_tokens=10, num_return_sequences=n
        )
    texts = tokenizer.batch_decode(drawn[:, encoded["input_ids"].shape[1] :], skip_special_tokens=True)
    right = [MATHEMATICS.grade(text, asked[place // n].answer, {}).correct for place, text in enumerate(texts)]
    return sum(right) / len(right)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=0, help="Optimizer steps of 32 prompts x 16 rollouts with TRL.")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    show_group()
    if chosen.steps:
        train(chosen.steps, chosen.seed, METHOD)
