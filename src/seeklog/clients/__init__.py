"""Producers and consumers of a store, and a buffering writer for one log."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from seeklog.clients.consumer import Consumer
from seeklog.clients.gathering import AppendFuture, SendFuture
from seeklog.clients.producer import Producer, RecordMetadata

if TYPE_CHECKING:
    from seeklog.clients.asynchronous import AsyncConsumer, AsyncProducer
    from seeklog.clients.bulk import SendManyFuture
    from seeklog.clients.deserializing import ConsumerRecord, DeserializingConsumer
    from seeklog.clients.log_writer import LogWriter
    from seeklog.clients.serializing import SerializingProducer

__all__ = [
    "AppendFuture",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "ConsumerRecord",
    "DeserializingConsumer",
    "LogWriter",
    "Producer",
    "RecordMetadata",
    "SendFuture",
    "SendManyFuture",
    "SerializingProducer",
]

# Loaded on first use: most programs send one by one, and have records of bytes.
_HOMES = {
    "AsyncConsumer": "asynchronous",
    "AsyncProducer": "asynchronous",
    "ConsumerRecord": "deserializing",
    "DeserializingConsumer": "deserializing",
    "LogWriter": "log_writer",
    "SendManyFuture": "bulk",
    "SerializingProducer": "serializing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'seeklog.clients' has no attribute {name!r}")
    return getattr(import_module(f"seeklog.clients.{_HOMES[name]}"), name)
