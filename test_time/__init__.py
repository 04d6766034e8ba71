"""Test-time RL: adapts a model to an unlabelled test set, and returns answers."""
