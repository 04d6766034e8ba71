"""`restrain integrate`: commands that exist, as people write them, and what of them would be refused."""
