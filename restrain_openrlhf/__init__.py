"""RESTRAIN, label-free RL with self-penalisation, as a pipeline on OpenRLHF."""

__version__ = "0.1.0"
