"""Figures of runs and evaluations as PNG, and one-page HTML reports."""
