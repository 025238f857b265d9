"""Rows of Arrow arrays encoded as record batches, without copying them first. Needs the `arrow` extra.

key, value   binary or string, or their large variants; null stays null
timestamp    timestamp[us or ms] in any time zone; null becomes the given time, microseconds are truncated
headers      list<struct<key: string, value: binary>>; a null list means no headers, a null key is refused

Arrays may be slices, and a column may be missing. The invariant is the kernel's: the offsets in an array are checked
against its buffers, so an invalid array raises an error and never crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from seeklog.errors import FormatError, InvalidRecord, RecordTooLarge, SeeklogError, UsageError
from seeklog.record import arrow_rows, layout
from seeklog.record.arrow import import_pyarrow
from seeklog.record.arrow_rows import ArrowBytes, ArrowHeaders, ArrowInts, ArrowRows
from seeklog.record.batch import DECOMPRESSED_LIMIT
from seeklog.record.codec import CODEC_NAMES, NONE
from seeklog.record.growing import GrowingBatch

if TYPE_CHECKING:
    import pyarrow

# Kafka gathers batches of 16 KB while a producer waits. Rows of a table are all there already, and larger batches
# compress better and cost less per row.
BATCH_BYTES: Final = 64 << 10
INT32_MAX: Final = 2**31 - 1


def record_rows(
    *,
    key: pyarrow.Array | None = None,
    value: pyarrow.Array | None = None,
    timestamp: pyarrow.Array | None = None,
    headers: pyarrow.Array | None = None,
) -> ArrowRows:
    """Return the columns of a table as rows for `encode_rows`, which may use them many times. Nothing is copied.

    Raises `UsageError` for an unsupported type and `InvalidRecord` if the arrays differ in length.
    """
    pa = import_pyarrow()
    given = [array for array in (key, value, timestamp, headers) if array is not None]
    if not given:
        raise UsageError("pass at least one column")
    for array in given:
        if not isinstance(array, pa.Array):
            raise UsageError(f"columns are Arrow arrays, not {type(array).__name__}; combine the chunks first")
    times = None if timestamp is None else _times(pa, timestamp)
    return ArrowRows(
        len(given[0]),
        key=None if key is None else _bytes(pa, key, "key"),
        value=None if value is None else _bytes(pa, value, "value"),
        timestamp=times,
        headers=None if headers is None else _headers(pa, headers),
        micros=timestamp is not None and timestamp.type.unit == "us",
    )


def encode_rows(
    columns: ArrowRows,
    *,
    rows: pyarrow.Array | None = None,
    now_ms: int,
    codec: int = NONE,
    batch_bytes: int = BATCH_BYTES,
    max_batch_bytes: int = INT32_MAX,
    limit: int = DECOMPRESSED_LIMIT,
) -> Iterator[tuple[bytes, int]]:
    """Yield rows as (finished batch with base offset 0, its record count).

    `rows` lists the row numbers to take, in order, as int32 or int64; None takes all rows. A batch ends before the
    record that would take it past `batch_bytes` before compression; a larger record gets a batch to itself.
    Raises, naming the row, `RecordTooLarge` if a record's batch is larger than `max_batch_bytes`, or would be
    compressed from more than `limit` bytes, and `InvalidRecord` if a record cannot be encoded. Batches yielded before
    the error stay valid, so a caller that needs all or nothing must hold them back until the end.
    """
    if codec not in CODEC_NAMES:
        raise FormatError(f"codec {codec} is not one of Kafka's: {', '.join(map(str, CODEC_NAMES))}")
    if min(batch_bytes, max_batch_bytes, limit) < 1 or now_ms < layout.NO_TIMESTAMP:
        raise UsageError("batch_bytes, max_batch_bytes and limit are at least 1, now_ms is at least -1")
    selection = None if rows is None else _numbers(import_pyarrow(), rows, "row")
    batch_bytes = min(batch_bytes, max_batch_bytes)
    # `limit` bounds decompression, so it does not apply to uncompressed batches.
    largest = min(limit, INT32_MAX) if codec else INT32_MAX

    def encode(start: int, stop: int) -> tuple[bytes, int]:
        return columns.encode(selection, start, stop, now_ms, codec, batch_bytes, largest)

    return _batches(encode, range(columns.rows) if rows is None else rows, max_batch_bytes)


def _batches(
    encode: Callable[[int, int], tuple[bytes, int]], rows: Sequence[Any], max_batch_bytes: int
) -> Iterator[tuple[bytes, int]]:
    at, end = 0, len(rows)
    while at < end:
        batch, stop = encode(at, end)
        while len(batch) > max_batch_bytes:
            if stop - at == 1:
                raise RecordTooLarge(
                    f"row {rows[at]}: its batch has {len(batch):,} bytes, and max.message.bytes is "
                    f"{max_batch_bytes:,}; split the row, or raise that setting of the topic"
                )
            # Random bytes grow when compressed.
            batch, stop = encode(at, at + (stop - at) // 2)
        yield batch, stop - at
        at = stop


def scatter_rows(
    columns: ArrowRows, partitions: pyarrow.Array, *, count: int, now_ms: int, batch_bytes: int
) -> Iterator[tuple[int, GrowingBatch]]:
    """Yield (partition, rows as a batch that is not finished), a batch when it is full, and the last ones at the end.

    `partitions` has the partition of each row, of `count`. Each partition keeps the order of its rows. After an error
    the batches of the rows before it are yielded, and then it is raised.
    """
    numbers = _numbers(import_pyarrow(), partitions, "partition", nulls=True)
    batches = [GrowingBatch() for _ in range(count)]
    row, full = 0, 0
    error: SeeklogError | None = None
    while full >= 0:
        try:
            row, full = columns.scatter(numbers, row, now_ms, batches, batch_bytes)
        except SeeklogError as raised:
            error, full = raised, -1
        if full >= 0:
            yield full, batches[full]
            batches[full] = GrowingBatch()
    yield from ((partition, batch) for partition, batch in enumerate(batches) if batch.count)
    if error is not None:
        raise error


def choose_partitions(
    columns: Mapping[str, pyarrow.Array], *, row_count: int, count: int, turn: int, by_key: pyarrow.Array | None = None
) -> pyarrow.Array:
    """Return the partition of each row, of `count`: of the column `partition`, else of the key, else `turn`.

    `by_key` has the partitions of keys if they are not those of Kafka's default partitioner; -1 for a null key.
    """
    pa = import_pyarrow()
    import pyarrow.compute as pc

    rest = pa.scalar(turn % count, pa.int32())
    if "key" in columns:
        if by_key is None:
            by_key = partitions_of_keys(columns["key"], count=count)
        chosen = pc.if_else(pc.less(by_key, 0), rest, by_key) if columns["key"].null_count else by_key
    else:
        chosen = pa.repeat(rest, row_count)
    if "partition" in columns:
        given = columns["partition"]
        lowest, highest = pc.min_max(given).as_py().values()
        if lowest is not None and not 0 <= lowest <= highest < count:
            raise InvalidRecord(
                f"column partition has {highest if lowest >= 0 else lowest}, but the topic has partitions 0 to "
                f"{count - 1}; drop the column to choose partitions by key"
            )
        chosen = pc.coalesce(given, chosen)
    return chosen


def partitions_of_keys(keys: pyarrow.Array, *, count: int) -> pyarrow.Array:
    """Return each key's partition, of `count`, by Kafka's default partitioner; -1 where the key is null.

    The empty key is a key. The result is int32 without nulls.
    """
    pa = import_pyarrow()
    _check_count(count)
    partitions = arrow_rows.partitions_of(_bytes(pa, keys, "key"), count)
    return pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(partitions)], 0)


def group_rows(partitions: pyarrow.Array, *, count: int) -> list[tuple[int, pyarrow.Array]]:
    """Return (partition, its rows) for each of `count` partitions that has rows; both in ascending order.

    Rows are int32 numbers, as `encode_rows` takes them. A partition that is null or outside [0, count) raises
    `InvalidRecord`.
    """
    pa = import_pyarrow()
    _check_count(count)
    if len(partitions) > INT32_MAX:
        raise UsageError(f"{len(partitions):,} rows; group at most {INT32_MAX:,} at once")
    numbers, starts = arrow_rows.group_rows(_numbers(pa, partitions, "partition", nulls=True), count)
    rows = pa.Array.from_buffers(pa.int32(), len(partitions), [None, pa.py_buffer(numbers)], 0)
    return [
        (partition, rows.slice(starts[partition], starts[partition + 1] - starts[partition]))
        for partition in range(count)
        if starts[partition + 1] > starts[partition]
    ]


def _check_count(count: int) -> None:
    if not 1 <= count <= INT32_MAX:
        raise UsageError(f"a topic has 1 to {INT32_MAX:,} partitions, not {count}")


def _bytes(pa: Any, array: pyarrow.Array, name: str, kinds: str = "binary or string") -> ArrowBytes:
    kind = array.type
    is_wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not (is_wide or pa.types.is_binary(kind) or pa.types.is_string(kind)):
        raise UsageError(f"the column {name} is {kind}; it must be {kinds}: cast it first")
    valid, ends, data = array.buffers()
    return ArrowBytes(len(array), offset=array.offset, wide=is_wide, valid=valid, ends=ends, data=data)


def _times(pa: Any, array: pyarrow.Array) -> ArrowInts:
    kind = array.type
    if not pa.types.is_timestamp(kind) or kind.unit not in ("us", "ms") or kind.tz is None:
        raise UsageError(f"the column timestamp is {kind}; it must be timestamp[us, tz=UTC]: cast it first")
    valid, data = array.buffers()
    return ArrowInts(len(array), offset=array.offset, wide=True, valid=valid, data=data)


def _numbers(pa: Any, array: pyarrow.Array, name: str, *, nulls: bool = False) -> ArrowInts:
    if array.type not in (pa.int32(), pa.int64()):
        raise UsageError(f"the numbers of each {name} are {array.type}; they must be int32 or int64: cast them first")
    if array.null_count and not nulls:
        raise InvalidRecord(f"the number of a {name} is null")
    valid, data = array.buffers()
    return ArrowInts(len(array), offset=array.offset, wide=array.type == pa.int64(), valid=valid, data=data)


def _headers(pa: Any, array: pyarrow.Array) -> ArrowHeaders:
    kind = array.type
    is_wide = pa.types.is_large_list(kind)
    pair = kind.value_type if is_wide or pa.types.is_list(kind) else None
    if pair is None or not pa.types.is_struct(pair) or {field.name for field in pair} != {"key", "value"}:
        raise UsageError(
            f"the column headers is {kind}; it must be list<struct<key: string, value: binary>>: cast it first"
        )
    valid, ends = array.buffers()[:2]
    pairs = array.values
    return ArrowHeaders(
        len(array),
        offset=array.offset,
        wide=is_wide,
        valid=valid,
        ends=ends,
        pair_offset=pairs.offset,
        pair_valid=pairs.buffers()[0],
        keys=_bytes(pa, pairs.field("key"), "headers.key", "string"),
        values=_bytes(pa, pairs.field("value"), "headers.value"),
    )
