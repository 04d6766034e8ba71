"""What the hook writes of each step."""
