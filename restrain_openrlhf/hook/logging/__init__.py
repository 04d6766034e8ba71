"""What the hook writes after each step."""
