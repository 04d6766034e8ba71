"""A command for tests: says its process id, sleeps for so many seconds, ends with a status."""

import os
import sys
import time

if __name__ == "__main__":
    print(os.getpid(), flush=True)
    time.sleep(float(sys.argv[1]))
    sys.exit(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
