"""`python tests/power`: loses power on one file system, and prints the verdict on each image as a line of JSON.

All mounts and processes are in private namespaces, so that mounts, loop devices, and servers disappear when the program
ends for any reason. `power.program.lose_power` starts it that way.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from power.program import main

if __name__ == "__main__":
    sys.exit(main())
