"""The rollout side of the hook: prompts out, groups drawn, scored, and back as experiences."""
