"""Whether the files of a partition are what was written, and mending those that are not. The only door to it."""

from seeklog.log.check.deep_inspection import inspect_records, inspect_sides, read_batches, whole_ranges
from seeklog.log.check.finding import Finding, Kind, Severity
from seeklog.log.check.inspection import (
    Inspection,
    Plan,
    Subject,
    conclude,
    has_changed,
    inspect_segment,
    plan_inspection,
)
from seeklog.log.check.portrait import DamagedBytes, Portrait, SegmentPortrait, take_portrait
from seeklog.log.check.reindex import (
    BatchMap,
    IndexProblem,
    Renewed,
    offset_problems,
    rebuild_index,
    recover_or_rebuild,
    renew_index,
    sizes_of,
    state_of_every_batch,
    time_problems,
    validate_index,
)
from seeklog.log.check.repair_work import RepairPlan, plan_repair, repair
from seeklog.log.check.salvage import Damage, Salvage

__all__ = [
    "BatchMap",
    "Damage",
    "DamagedBytes",
    "Finding",
    "IndexProblem",
    "Inspection",
    "Kind",
    "Plan",
    "Portrait",
    "Renewed",
    "RepairPlan",
    "Salvage",
    "SegmentPortrait",
    "Severity",
    "Subject",
    "conclude",
    "has_changed",
    "inspect_records",
    "inspect_segment",
    "inspect_sides",
    "offset_problems",
    "plan_inspection",
    "plan_repair",
    "read_batches",
    "rebuild_index",
    "recover_or_rebuild",
    "renew_index",
    "repair",
    "sizes_of",
    "state_of_every_batch",
    "take_portrait",
    "time_problems",
    "validate_index",
    "whole_ranges",
]
