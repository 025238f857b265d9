"""Makes what stands under tests/ importable by name, and says how Hypothesis runs here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    # pytest's importlib mode adds nothing to the path.
    sys.path.insert(0, str(HERE))

# The same examples every time, so that a red run is red again. SEEKLOG_MODEL_EXAMPLES asks for more and for
# others: those are drawn anew each time, and Hypothesis prints how to draw a failing one again.
_MORE = int(os.environ.get("SEEKLOG_MODEL_EXAMPLES", "0"))
settings.register_profile(
    "seeklog",
    deadline=None,  # the machine is shared; what must be fast is measured by bench/
    derandomize=not _MORE,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("seeklog")
