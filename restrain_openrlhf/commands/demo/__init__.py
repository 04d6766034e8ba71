"""The demo: trains a small model without labels, in minutes."""
