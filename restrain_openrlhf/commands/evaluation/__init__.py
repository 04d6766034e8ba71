"""`restrain eval`, `regrade`, `table`, `plot` and `analyze`."""
