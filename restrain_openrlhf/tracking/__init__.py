"""Where a run's numbers are written: JSON Lines beside the run, and MLflow where it is asked for."""
