"""Mends of the host: each names the host's file, and when the mend can go."""
