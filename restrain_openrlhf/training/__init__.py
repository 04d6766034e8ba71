"""A training run from outside: started, followed, resumed, and merged at its end."""
