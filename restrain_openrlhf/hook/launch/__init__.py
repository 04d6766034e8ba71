"""A run seen from outside: it is checked, started, followed, resumed, and shown on the terminal."""
