"""The small tasks that are shipped: addition, and digit products on which a shortcut tempts, with a base model each."""
