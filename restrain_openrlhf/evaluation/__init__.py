"""Accuracy of sampled answers against gold; runs after training, never inside it."""
