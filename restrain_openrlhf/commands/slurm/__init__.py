"""From a run's configuration to a Slurm job: its nodes, its script, and the configuration beside it."""
