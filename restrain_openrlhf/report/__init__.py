"""What people look at: curves and tables of runs, as PNG and as one HTML page."""
