"""A commit log in Kafka's own file format, inside your Python process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seeklog import errors
    from seeklog.clients.consumer import Consumer
    from seeklog.clients.producer import Producer, RecordMetadata, SendFuture
    from seeklog.config import LogConfig
    from seeklog.errors import SeeklogError
    from seeklog.groups.description import GroupDescription, PartitionLag
    from seeklog.names import TopicPartition
    from seeklog.record.batch import Batch, BatchHeader
    from seeklog.record.record import Record
    from seeklog.storage.log import Log
    from seeklog.storage.producers import ProducerSequence
    from seeklog.storage.reading import FileRange, Seek
    from seeklog.storage.recovery import RecoveryReport
    from seeklog.storage.reindex import IndexProblem, rebuild_index, recover_or_rebuild, validate_index
    from seeklog.storage.repair import RepairPlan, plan_repair, repair
    from seeklog.storage.writer import AppendFuture, LogWriter
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
    "AppendFuture": "storage.writer",
    "Archived": "topics.description",
    "Batch": "record.batch",
    "BatchHeader": "record.batch",
    "Consumer": "clients.consumer",
    "FileRange": "storage.reading",
    "GroupDescription": "groups.description",
    "IndexProblem": "storage.reindex",
    "Log": "storage.log",
    "LogConfig": "config",
    "LogWriter": "storage.writer",
    "PartitionDescription": "topics.description",
    "PartitionLag": "groups.description",
    "Producer": "clients.producer",
    "ProducerSequence": "storage.producers",
    "Record": "record.record",
    "RecordMetadata": "clients.producer",
    "RecoveryReport": "storage.recovery",
    "RepairPlan": "storage.repair",
    "Seek": "storage.reading",
    "SeeklogError": "errors",
    "SendFuture": "clients.producer",
    "Store": "store",
    "TopicDescription": "topics.description",
    "TopicPartition": "names",
    "plan_repair": "storage.repair",
    "rebuild_index": "storage.reindex",
    "recover_or_rebuild": "storage.reindex",
    "repair": "storage.repair",
    "validate_index": "storage.reindex",
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
