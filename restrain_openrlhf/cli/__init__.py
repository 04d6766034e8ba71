"""The `restrain` command line."""
