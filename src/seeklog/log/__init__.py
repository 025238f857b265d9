"""One partition on disk. Code outside this package imports only from here, not from the modules inside.

There are two exceptions: `seeklog.log.side` has the formats of the small files beside a log, and `seeklog.log.check`
the tools that verify and repair. Opening a log does not load those tools.
"""

from seeklog.log.background import Maintenance
from seeklog.log.broker_visit import known_checkpoint
from seeklog.log.clean.compaction import BUFFER_BYTES, Cleanable, Compacted
from seeklog.log.clean.removal import Removal
from seeklog.log.columns import scan_arrow
from seeklog.log.directory import lock_directory, lock_out_broker
from seeklog.log.headers import Census, first_timestamp_ms, prefix_size, scan_headers, take_census
from seeklog.log.host import Host, OpenSegments
from seeklog.log.index import OFFSET_ENTRY, TIME_ENTRY
from seeklog.log.keys.index import open_key_index
from seeklog.log.layout import Layout
from seeklog.log.metrics import LogMetrics
from seeklog.log.pinned import Pin, make_pin, offset_index, pinned_view
from seeklog.log.producers import MAX_EPOCH, ProducerSequence
from seeklog.log.reader import (
    LogReader,
    Snapshot,
    find_offset_at_time,
    is_same_topic,
    scan_batches,
    take_durable_snapshot,
    take_snapshot,
)
from seeklog.log.reading import FileRange, Seek
from seeklog.log.recovery import RecoveryReport, list_beside_writer
from seeklog.log.segment import ADVICE, Segment, Shared, scan_into, seal_of
from seeklog.log.side.transaction_index import aborted_below
from seeklog.log.slice import Slice
from seeklog.log.staging import StagedFile, Stager, read_staged, remove_staged
from seeklog.log.timestamps import TimestampRule
from seeklog.log.transaction import (
    Part,
    Transaction,
    decode_transaction,
    end_transaction,
    last_parts,
    read_transaction,
    write_transaction,
)
from seeklog.log.view import View
from seeklog.log.writer import Log, append_part

__all__ = [
    "ADVICE",
    "BUFFER_BYTES",
    "MAX_EPOCH",
    "OFFSET_ENTRY",
    "TIME_ENTRY",
    "Census",
    "Cleanable",
    "Compacted",
    "FileRange",
    "Host",
    "Layout",
    "Log",
    "LogMetrics",
    "LogReader",
    "Maintenance",
    "OpenSegments",
    "Part",
    "Pin",
    "ProducerSequence",
    "RecoveryReport",
    "Removal",
    "Seek",
    "Segment",
    "Shared",
    "Slice",
    "Snapshot",
    "StagedFile",
    "Stager",
    "TimestampRule",
    "Transaction",
    "View",
    "aborted_below",
    "append_part",
    "decode_transaction",
    "end_transaction",
    "find_offset_at_time",
    "first_timestamp_ms",
    "is_same_topic",
    "known_checkpoint",
    "last_parts",
    "list_beside_writer",
    "lock_directory",
    "lock_out_broker",
    "make_pin",
    "offset_index",
    "open_key_index",
    "pinned_view",
    "prefix_size",
    "read_staged",
    "read_transaction",
    "remove_staged",
    "scan_arrow",
    "scan_batches",
    "scan_headers",
    "scan_into",
    "seal_of",
    "take_census",
    "take_durable_snapshot",
    "take_snapshot",
    "write_transaction",
]
