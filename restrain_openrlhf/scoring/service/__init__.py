"""RESTRAIN behind OpenRLHF's remote reward interface."""
