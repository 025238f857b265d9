"""Makes the suites under tests/ importable by name; pytest's importlib mode adds nothing to the path."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = str(Path(__file__).resolve().parents[1])
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)
