"""`python tests/power`: loses power on one file system, and prints what came of each image, a JSON object a line.

Everything is mounted in a namespace of its own and every process lives in one: when the program ends, in whatever
way, mounts, loop devices and servers are gone with it. `power.program.lose_power` starts it like that.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from power.program import main

if __name__ == "__main__":
    sys.exit(main())
