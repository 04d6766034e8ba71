"""Runs `restrain` for `python -m restrain_openrlhf`."""

from restrain_openrlhf.commands.main import main

if __name__ == "__main__":
    main()
