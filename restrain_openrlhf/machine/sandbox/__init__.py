"""Runs programs that a model has written, each confined in its own process, and returns what they did."""
