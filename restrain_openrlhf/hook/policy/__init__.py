"""The policy side of the hook: the advantage pair in the host's optimizer step."""
