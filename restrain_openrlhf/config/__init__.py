"""Typed, strict configuration: a wrong key is an error that names the key and the fix."""
