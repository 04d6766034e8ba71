"""Whether label-free training can work on these prompts with this base model, told from the frozen model's rollouts."""
