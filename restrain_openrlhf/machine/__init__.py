"""This machine: its accelerator, the installed host releases, and the processes that commands start."""
