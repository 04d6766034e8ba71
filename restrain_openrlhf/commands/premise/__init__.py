"""Tells from the frozen model's rollouts whether label-free training can work on these prompts."""
