"""A training run from outside: started, followed and resumed."""
