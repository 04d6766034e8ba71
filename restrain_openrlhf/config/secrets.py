"""Which of OpenRLHF's flags hold a secret: they are neither published nor sent anywhere, nor written for others."""

# Others with such a word (data.input_key, rollout.max_new_tokens) name columns and numbers.
SECRET_FLAGS = frozenset({"logger.wandb.key"})
