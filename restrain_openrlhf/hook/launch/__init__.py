"""A run from outside: checked, started, followed and resumed; what it looks like on the terminal."""
