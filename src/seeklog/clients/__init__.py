"""Producers and consumers of a store, and a buffering writer for one log."""

from seeklog.clients.consumer import Consumer
from seeklog.clients.log_writer import AppendFuture, LogWriter
from seeklog.clients.producer import Producer, RecordMetadata, SendFuture

__all__ = ["AppendFuture", "Consumer", "LogWriter", "Producer", "RecordMetadata", "SendFuture"]
