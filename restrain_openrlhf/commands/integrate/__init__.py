"""`restrain integrate`: what changes in a training command that exists, and what it would be refused for."""
