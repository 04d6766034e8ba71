"""The demo: a small model and a task on which label-free training takes minutes."""
