"""`restrain eval`, `regrade`, `table`, `plot` and `analyze`: what was sampled, graded and told."""
