"""A commit log in Kafka's own file format, inside your Python process."""

from seeklog.clients.consumer import Consumer
from seeklog.clients.producer import Producer, RecordMetadata, SendFuture
from seeklog.config import LogConfig
from seeklog.errors import SeeklogError
from seeklog.groups.description import GroupDescription, PartitionLag
from seeklog.names import TopicPartition
from seeklog.record.batch import Batch, BatchHeader
from seeklog.record.kernel import Record
from seeklog.storage.log import Log
from seeklog.storage.producers import ProducerSequence
from seeklog.storage.reading import FileRange, Seek
from seeklog.storage.recovery import RecoveryReport
from seeklog.storage.reindex import IndexProblem, rebuild_index, recover_or_rebuild, validate_index
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
    "Seek",
    "SeeklogError",
    "SendFuture",
    "Store",
    "TopicDescription",
    "TopicPartition",
    "open",
    "rebuild_index",
    "recover_or_rebuild",
    "validate_index",
]
