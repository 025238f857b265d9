"""The targets: what must hold, by number."""

from __future__ import annotations

from typing import Final

TARGETS: Final = {
    1: "Crash states",
    2: "Torn tails",
    3: "Flipped bits",
    4: "Failing syncs",
    5: "Full disks",
    6: "Kills",
    7: "Power loss on real file systems",
    8: "Wrong indexes",
    9: "Readers beside writers",
    10: "One writer",
    11: "Model",
    12: "Decoders under fuzz",
    13: "Bombs",
    14: "Lengths and counts",
    15: "Compaction and retention",
    16: "Clocks",
    17: "Names and paths",
    22: "Compatibility",
    23: "Strength of the tests",
}
