"""Programs that nobody has read: each runs in a process of its own, confined, and what it did comes back."""
