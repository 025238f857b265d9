"""The checkpoint of a log, and the leader epochs in it and in Kafka's file."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from seeklog import names
from seeklog.clock import Clock
from seeklog.errors import DiskFull
from seeklog.files import Files, replace_file
from seeklog.log.gate import Gate
from seeklog.log.side.checkpoint import Checkpoint, encode_checkpoint
from seeklog.log.side.epochs import Entry, LeaderEpochs

logger = logging.getLogger("seeklog")

# How often the recovery point is written to disk while records are synced.
CHECKPOINT_INTERVAL_S = 1.0


class Promises:
    """The checkpoint of a log that is open for writing. Only one thread at a time may call its methods."""

    def __init__(self, files: Files, directory: str, gate: Gate, clock: Clock, *, saved: Checkpoint | None) -> None:
        self._files = files
        self._directory = directory
        self._gate = gate
        self._clock = clock
        self._checkpointed_at = clock.monotonic()
        self.saved = saved
        """Our checkpoint as it is on disk; None if we have not written one."""
        self.generation = saved.generation if saved is not None else 0
        self.contiguous_from = 0
        """The offset from which seeklog wrote every batch."""
        self.epochs = LeaderEpochs.read(files, directory)

    def keep_stale_checkpoint(self) -> None:
        """Keep the checkpoint from before a broker's visit as evidence. The open replaces it and the seals."""
        data = self._files.read_file(f"{self._directory}/{names.CHECKPOINT}")
        replace_file(self._files, self._directory, names.STALE_CHECKPOINT, data)
        self.saved = None
        self.generation += 1
        logger.info(
            "%s: a broker has written here since seeklog did: every batch is checked, seals and indexes are rebuilt, "
            "and the old checkpoint is kept as %s",
            self._directory,
            names.STALE_CHECKPOINT,
        )

    def begin_epochs(self, scanned: Sequence[Entry], *, log_start_offset: int, log_end_offset: int) -> None:
        """Combine the epochs from the checkpoint, from Kafka's file, and from a scan of the batches."""
        epochs = self.epochs
        if self.saved is not None:
            # Each of our epochs is in a checkpoint before it is stamped on a batch. No CRC covers the epoch of a batch
            # or Kafka's file. So other epochs, as of a broker that appended, count only if both of these agree.
            scanned = [entry for entry in scanned if entry in epochs.entries]
            epochs.entries = list(self.saved.epochs)
        epochs.merge(scanned, log_start_offset=log_start_offset, log_end_offset=log_end_offset)
        if not epochs.entries:
            epochs.begin(0, log_start_offset)

    @property
    def is_due(self) -> bool:
        """Whether the checkpoint is old enough to be replaced after a sync."""
        return self._clock.monotonic() - self._checkpointed_at >= CHECKPOINT_INTERVAL_S

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint; durable on return. Raises `OSError`."""
        self._replace(checkpoint)
        self._files.sync_directory(self._directory)

    def _replace(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint. Other processes see it at once; the caller syncs the directory."""
        has_new_epochs = not self.epochs.is_written
        if has_new_epochs:
            self.epochs.stage(self._files, self._directory)
        replace_file(self._files, self._directory, names.CHECKPOINT, encode_checkpoint(checkpoint))
        if has_new_epochs:
            if self.saved is not None:
                # An epoch that is only in Kafka's file counts as a broker's, so the checkpoint must be durable first.
                self.sync_names()
            try:
                self.epochs.publish(self._files, self._directory)
            except OSError as error:
                raise self._gate.fail("writing the leader epochs", error) from error
        self.saved = checkpoint
        self._checkpointed_at = self._clock.monotonic()

    def must_write(self, checkpoint: Checkpoint) -> None:
        """Make a checkpoint durable before the change that it describes. Raises `DiskFull` or `LogFailed`."""
        try:
            self._replace(checkpoint)
        except OSError as error:
            raise self._gate.refuse_change("the checkpoint", error) from error
        self.sync_names()

    def try_write(self, checkpoint: Checkpoint) -> None:
        """Write the recovery point. On a full disk the older one stays, and is still true."""
        try:
            self.must_write(checkpoint)
        except DiskFull as error:
            logger.warning(
                "%s: the checkpoint cannot be written until the disk has room: %s", self._directory, error.__cause__
            )

    def sync_names(self) -> None:
        """Make renames durable. The new names are already visible, so any failure fails the log."""
        try:
            self._files.sync_directory(self._directory)
        except OSError as error:
            raise self._gate.fail("a sync", error) from error
