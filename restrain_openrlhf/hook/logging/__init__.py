"""Writes the records of each training step: metrics, kept rollouts and the trainer's log."""
