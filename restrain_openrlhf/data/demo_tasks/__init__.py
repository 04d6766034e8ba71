"""The small tasks of the demo, each with a base model that is shipped."""
