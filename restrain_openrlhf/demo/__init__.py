"""A small model and a task of its own, on which label-free training shows in minutes."""
