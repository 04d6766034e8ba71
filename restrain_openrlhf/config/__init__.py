"""Typed, strict configuration. A wrong key is an error that names the key and how to fix it."""
