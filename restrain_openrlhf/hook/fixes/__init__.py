"""Fixes of the host. Each names the host's file, and says when the fix can go."""
