"""Test-time RL: adapt a model to an unlabelled test set, and hand back answers."""
