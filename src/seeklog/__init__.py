"""A commit log in Kafka's own file format, inside your Python process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seeklog import errors
    from seeklog.clients.consumer import Consumer
    from seeklog.clients.log_writer import AppendFuture, LogWriter
    from seeklog.clients.producer import Producer, RecordMetadata, SendFuture
    from seeklog.config import LogConfig
    from seeklog.errors import SeeklogError
    from seeklog.groups.description import GroupDescription, PartitionLag
    from seeklog.log import FileRange, Log, ProducerSequence, RecoveryReport, Seek
    from seeklog.log.check import (
        IndexProblem,
        RepairPlan,
        plan_repair,
        rebuild_index,
        recover_or_rebuild,
        repair,
        validate_index,
    )
    from seeklog.names import TopicPartition
    from seeklog.record.batch import Batch, BatchHeader
    from seeklog.record.kernel import Record
    from seeklog.store import Store
    from seeklog.store import open_store as open  # noqa: A004  # seeklog.open, as gzip.open and others
    from seeklog.topics.description import Archived, PartitionDescription, TopicDescription

__version__ = "0.1.0"

__all__ = [
    "AppendFuture",
    "Archived",
    "Batch",
    "BatchHeader",
    "Consumer",
    "FileRange",
    "GroupDescription",
    "IndexProblem",
    "Log",
    "LogConfig",
    "LogWriter",
    "PartitionDescription",
    "PartitionLag",
    "Producer",
    "ProducerSequence",
    "Record",
    "RecordMetadata",
    "RecoveryReport",
    "RepairPlan",
    "Seek",
    "SeeklogError",
    "SendFuture",
    "Store",
    "TopicDescription",
    "TopicPartition",
    "errors",
    "open",
    "plan_repair",
    "rebuild_index",
    "recover_or_rebuild",
    "repair",
    "validate_index",
]

# Loaded when first asked for: whoever wants a part, above all the command line, does not wait for the whole.
_HOMES = {
    "AppendFuture": "clients.log_writer",
    "Archived": "topics.description",
    "Batch": "record.batch",
    "BatchHeader": "record.batch",
    "Consumer": "clients.consumer",
    "FileRange": "log",
    "GroupDescription": "groups.description",
    "IndexProblem": "log.check",
    "Log": "log",
    "LogConfig": "config",
    "LogWriter": "clients.log_writer",
    "PartitionDescription": "topics.description",
    "PartitionLag": "groups.description",
    "Producer": "clients.producer",
    "ProducerSequence": "log",
    "Record": "record.kernel",
    "RecordMetadata": "clients.producer",
    "RecoveryReport": "log",
    "RepairPlan": "log.check",
    "Seek": "log",
    "SeeklogError": "errors",
    "SendFuture": "clients.producer",
    "Store": "store",
    "TopicDescription": "topics.description",
    "TopicPartition": "names",
    "plan_repair": "log.check",
    "rebuild_index": "log.check",
    "recover_or_rebuild": "log.check",
    "repair": "log.check",
    "validate_index": "log.check",
}


def __getattr__(name: str) -> Any:
    found: Any
    if name == "errors":
        found = import_module("seeklog.errors")
    elif name == "open":
        found = import_module("seeklog.store").open_store
    elif name in _HOMES:
        found = getattr(import_module(f"seeklog.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'seeklog' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
