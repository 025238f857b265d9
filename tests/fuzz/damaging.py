"""`python tests/fuzz/damaging.py TARGET RUNS SEED`: random mutations without libFuzzer, in a separate process."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.campaign import damage
from fuzz.target import load_targets

if __name__ == "__main__":
    name, runs, seed = sys.argv[1:]
    print(json.dumps(asdict(damage(load_targets()[name], runs=int(runs), seed=int(seed)))))
