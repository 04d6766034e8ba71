"""A command for tests: says its process id, sleeps for so many seconds or until a file is there, ends with a status."""

import os
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    print(os.getpid(), flush=True)
    if sys.argv[1].startswith("/"):
        while not Path(sys.argv[1]).exists():
            time.sleep(0.02)
    else:
        time.sleep(float(sys.argv[1]))
    sys.exit(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
