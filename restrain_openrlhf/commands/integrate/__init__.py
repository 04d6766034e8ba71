"""`restrain integrate`: how an existing training command changes, and which of its flags would be refused."""
