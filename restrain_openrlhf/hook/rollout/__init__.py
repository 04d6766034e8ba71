"""The rollout side of the hook: prompts are dispatched, groups drawn and scored, and their scores carried back."""
