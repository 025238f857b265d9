"""A commit log in Kafka's own file format, inside your Python process."""

from seeklog.config import LogConfig
from seeklog.errors import SeeklogError
from seeklog.record.batch import Batch, BatchHeader
from seeklog.record.kernel import Record
from seeklog.storage.log import Log
from seeklog.storage.reading import FileRange, Seek
from seeklog.storage.recovery import RecoveryReport
from seeklog.storage.reindex import IndexProblem, rebuild_index, recover_or_rebuild, validate_index
from seeklog.storage.writer import AppendFuture, LogWriter

__version__ = "0.1.0"

__all__ = [
    "AppendFuture",
    "Batch",
    "BatchHeader",
    "FileRange",
    "IndexProblem",
    "Log",
    "LogConfig",
    "LogWriter",
    "Record",
    "RecoveryReport",
    "Seek",
    "SeeklogError",
    "rebuild_index",
    "recover_or_rebuild",
    "validate_index",
]
