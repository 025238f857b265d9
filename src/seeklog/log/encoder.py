"""Turning appended records into batches, and refusing records that the log must not hold."""

from __future__ import annotations

from collections.abc import Sequence

from seeklog.clock import Clock
from seeklog.config import INT32_MAX, LogConfig, canonical_setting
from seeklog.errors import InvalidRecord, RecordTooLarge, SeeklogError, UsageError
from seeklog.log.producers import ProducerSequence
from seeklog.log.timestamps import TimestampRule
from seeklog.record import batch_header, decode, encode
from seeklog.record.codec import CODEC_IDS
from seeklog.record.growing import GrowingBatch, finish_batches
from seeklog.record.layout import HEADER_SIZE, LOG_APPEND_TIME
from seeklog.record.record import Record

_NO_PRODUCER = (-1, -1, -1)


class Encoder:
    """Turns records into batches. It has no state: any thread may call any method."""

    __slots__ = (
        "_config",
        "_directory",
        "_now_ms",
        "_rule",
        "_topic",
        "attributes",
        "codec",
        "max_batch_bytes",
        "needs_keys",
        "timestamps",
    )

    def __init__(self, directory: str, config: LogConfig, clock: Clock, *, topic: str | None) -> None:
        """`topic` is None for a log that is not part of a store."""
        self._directory = directory
        self._topic = topic
        self._config = config
        self._now_ms = clock.now_ms
        self.codec = CODEC_IDS[config.compression_type]
        self.attributes = self.codec | (LOG_APPEND_TIME if config.message_timestamp_type == "LogAppendTime" else 0)
        self.needs_keys = config.compacts
        self.max_batch_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._rule = TimestampRule(config, clock, subject=directory)
        self.timestamps = self._rule.for_encoder

    def check_keys(self, records: Sequence[Record]) -> None:
        """Raise `InvalidRecord` if the log is compacted and a record has no key."""
        if self.needs_keys:
            for record in records:
                if isinstance(record, Record) and record.key is None:
                    raise self.missing_key()

    def missing_key(self) -> InvalidRecord:
        return InvalidRecord(f"{self._directory} is compacted: a record needs a key; nothing was written")

    def encode(
        self,
        records: list[Record],
        *,
        now_ms: int,
        base_offset: int,
        leader_epoch: int,
        producer: ProducerSequence | None,
    ) -> bytes:
        fields = _NO_PRODUCER if producer is None else producer.fields
        return encode.encode_records(
            records, now_ms, base_offset, leader_epoch, self.attributes, fields, self.timestamps
        )

    def finish(
        self,
        batches: Sequence[GrowingBatch],
        *,
        now_ms: int,
        base_offset: int,
        leader_epoch: int,
        producer: ProducerSequence | None,
    ) -> tuple[bytes, int, int]:
        """Return (batches as bytes, the end of the first, the size of the largest), with consecutive offsets."""
        fields = _NO_PRODUCER if producer is None else producer.fields
        return finish_batches(list(batches), now_ms, base_offset, leader_epoch, self.attributes, fields)

    def accepted(self, batches: Sequence[GrowingBatch]) -> Sequence[GrowingBatch]:
        """Return the batches before the first that the log refuses. Raises if that is the first one."""
        self._check_encoded(batches[0])
        for index in range(1, len(batches)):
            try:
                self._check_encoded(batches[index])
            except SeeklogError:
                return batches[:index]
        return batches

    def _check_encoded(self, batch: GrowingBatch) -> None:
        if not batch.count:
            # Ctrl-C, or a record that did not fit in memory, came after the batch was begun.
            raise InvalidRecord("a batch needs at least one record")
        if self.needs_keys and batch.has_null_key:
            raise self.missing_key()
        if not self.attributes & LOG_APPEND_TIME:
            checked_up_to, accepted_up_to, check = self.timestamps
            if batch.min_timestamp <= checked_up_to or batch.max_timestamp > accepted_up_to:
                for index, record in enumerate(batch.records()):
                    check(index, record.timestamp_ms)
        if self.codec:
            self._check_readable(batch.size - HEADER_SIZE)

    def check_readable(self, records: list[Record]) -> None:
        """Raise `RecordTooLarge` for a batch that is small enough compressed, but too large for any reader."""
        self._check_readable(sum(map(encode.record_bound, records)))

    def _check_readable(self, size: int) -> None:
        limit = self._config.max_decompressed_bytes
        if size > limit:
            raise RecordTooLarge(
                f"the batch for {self._directory} has {size:,} bytes before compression, and readers take at most "
                f"max.decompressed.bytes, {limit:,}; {self._cure('max_decompressed_bytes', size)}"
            )

    def check_batches(self, raw: bytes) -> int:
        """Check a caller's whole batches. Return how many offsets they span."""
        try:
            count, span = batch_header.check_batches(raw, self._config.max_message_bytes)
        except RecordTooLarge as error:
            raise RecordTooLarge(f"{error}; {self._cure('max_message_bytes', len(raw))}") from None
        if not count:
            raise UsageError("no batch to append; pass at least one whole batch")
        if self.needs_keys:
            try:
                decode.check_keyed(raw, self._config.max_decompressed_bytes)
            except InvalidRecord as error:
                raise InvalidRecord(f"{self._directory} is compacted: {error}; nothing was written") from None
        if self._rule.has_limits:
            decode.check_timestamps(raw, self._config.max_decompressed_bytes, self._rule.check_limits)
        if span - 1 > INT32_MAX:
            raise RecordTooLarge(f"the batches span {span:,} offsets, a segment holds {2**31:,}; split the append")
        return span

    def with_append_time(self, raw: bytes) -> bytes:
        """Stamp the current time on whole batches if the log uses append time."""
        return encode.stamp_append_time(raw, self._now_ms()) if self.attributes & LOG_APPEND_TIME else raw

    def too_large(self, size: int, limit: int) -> RecordTooLarge:
        setting = "segment_bytes" if limit == self._config.segment_bytes else "max_message_bytes"
        return RecordTooLarge(
            f"the batch for {self._directory} has {size:,} bytes, and {canonical_setting(setting)} is {limit:,}; "
            f"{self._cure(setting, size)}"
        )

    def _cure(self, setting: str, size: int) -> str:
        """Return what to do about a batch of `size` bytes that a setting refuses."""
        if self._topic is None:
            call = f"LogConfig({setting}={size})"
        else:
            call = f'store.alter_topic("{self._topic}", {{"{canonical_setting(setting)}": {size}}})'
        return f"nothing was written. Send less at once, or raise the setting: {call}"
