"""The small files next to a log, as bytes and as values. Import their formats from here only."""

from seeklog.log.side.checkpoint import (
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from seeklog.log.side.epochs import Entry, LeaderEpochs, decode_epochs, encode_epochs
from seeklog.log.side.losses import read_losses
from seeklog.log.side.pages import SUM_SIZE, PageSums
from seeklog.log.side.producer_snapshot import decode_snapshot
from seeklog.log.side.root_offsets import RootLine, RootOffsets, RootWatch, decode_offsets, root_names_topic
from seeklog.log.side.seal import HEAD_SIZE, Seal, decode_seal, encode_head, encode_seal, read_seal, write_seal

__all__ = [
    "HEAD_SIZE",
    "SUM_SIZE",
    "Checkpoint",
    "Entry",
    "LeaderEpochs",
    "PageSums",
    "RootLine",
    "RootOffsets",
    "RootWatch",
    "Seal",
    "decode_checkpoint",
    "decode_epochs",
    "decode_offsets",
    "decode_seal",
    "decode_snapshot",
    "encode_checkpoint",
    "encode_epochs",
    "encode_head",
    "encode_seal",
    "read_checkpoint",
    "read_losses",
    "read_seal",
    "root_names_topic",
    "write_checkpoint",
    "write_seal",
]
