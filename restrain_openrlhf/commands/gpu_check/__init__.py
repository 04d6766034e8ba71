"""`restrain gpu-check`: what a long run relies on, tried for minutes on the device that is there."""
