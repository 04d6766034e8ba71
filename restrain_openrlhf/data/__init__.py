"""Reads and writes the project's data files."""
