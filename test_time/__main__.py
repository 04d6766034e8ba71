"""Runs `test-time` for `python -m test_time`."""

from test_time.cli import main

if __name__ == "__main__":
    main()
