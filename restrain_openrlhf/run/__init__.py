"""One training run: its folder, its process, its progress."""
