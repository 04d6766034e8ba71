"""Kept rollouts as a page: what a reader sees of each group, served on this machine or written as one file."""
