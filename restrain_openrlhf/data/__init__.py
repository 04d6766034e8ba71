"""Reading and writing of the project's data files."""
