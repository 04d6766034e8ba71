"""A run's model as a folder for the Hugging Face hub: weights, tokenizer, and a card that says how it was made."""
