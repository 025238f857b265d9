"""Checking the files of a partition, and repairing them. Import these tools from here only."""

from seeklog.log.check.finding import Finding, Kind, Severity
from seeklog.log.check.index_entries import (
    OFFSETS,
    TIMES,
    BatchMap,
    IndexProblem,
    index_problems,
    state_of_every_batch,
)
from seeklog.log.check.inspection import (
    Inspection,
    Plan,
    conclude,
    has_changed,
    inspect_records,
    inspect_segment,
    inspect_snapshots,
    plan_inspection,
)
from seeklog.log.check.portrait import Portrait, SegmentPortrait, take_portrait
from seeklog.log.check.reindex import (
    Renewed,
    rebuild_index,
    recover_or_rebuild,
    renew_index,
    sizes_of,
    validate_index,
)
from seeklog.log.check.repair_plan import RepairPlan, plan_repair
from seeklog.log.check.repair_work import repair
from seeklog.log.check.salvage import Damage, Salvage, read_batches
from seeklog.log.check.segment_task import SegmentTask

__all__ = [
    "OFFSETS",
    "TIMES",
    "BatchMap",
    "Damage",
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
    "SegmentTask",
    "Severity",
    "conclude",
    "has_changed",
    "index_problems",
    "inspect_records",
    "inspect_segment",
    "inspect_snapshots",
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
    "validate_index",
]
