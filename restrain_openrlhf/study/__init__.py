"""Comparing methods: several configurations times several seeds, run, resumed, and shown as tables and pictures."""
