"""A commit log in Kafka's file format, inside a Python process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seeklog import errors
    from seeklog.clients import Consumer, LogWriter, Producer, serializers
    from seeklog.config import LogConfig
    from seeklog.errors import SeeklogError
    from seeklog.log import Log, LogReader, ProducerSequence
    from seeklog.names import TopicPartition
    from seeklog.record.record import Record
    from seeklog.store import Store, Topic
    from seeklog.store import open_store as open  # noqa: A004  # seeklog.open, like gzip.open
    from seeklog.store.restoring import restore

__version__ = "0.1.0"

__all__ = [
    "Consumer",
    "Log",
    "LogConfig",
    "LogReader",
    "LogWriter",
    "Producer",
    "ProducerSequence",
    "Record",
    "SeeklogError",
    "Store",
    "Topic",
    "TopicPartition",
    "errors",
    "open",
    "restore",
    "serializers",
]

# Loaded on first use: the command line needs only a part of the package and must start fast.
_HOMES = {
    "Consumer": "clients",
    "Log": "log",
    "LogConfig": "config",
    "LogReader": "log",
    "LogWriter": "clients",
    "Producer": "clients",
    "ProducerSequence": "log",
    "Record": "record.record",
    "SeeklogError": "errors",
    "Store": "store",
    "Topic": "store",
    "TopicPartition": "names",
    "restore": "store.restoring",
}


def __getattr__(name: str) -> Any:
    value: Any
    if name == "errors":
        value = import_module("seeklog.errors")
    elif name == "serializers":
        value = import_module("seeklog.clients.serializers")
    elif name == "open":
        value = import_module("seeklog.store").open_store
    elif name in _HOMES:
        value = getattr(import_module(f"seeklog.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'seeklog' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
