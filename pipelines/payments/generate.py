"""Test payments for the pipeline, those of `seeklog demo`."""

from __future__ import annotations

from seeklog.cli.demo.payments import BREAKAGES, PER_SECOND, SEED, Arrival, append, arrivals, generate

__all__ = ["BREAKAGES", "PER_SECOND", "SEED", "Arrival", "append", "arrivals", "generate"]
