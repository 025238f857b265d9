"""A process of a soak: batch reads with Spark, and a stream that runs all the time.

    python -m soak.spark_reader DIRECTORY LEDGER REPORT SEED

Its report is that of `reader.py`.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seeklog.spark import session
from soak.ledger import COMPACTED, KEYS, PARTITIONS, PLAIN, Ledger, WrongAnswer, check_value, key_number
from soak.reader import expect, when_input_ends

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkReader:
    """The reads and their results."""

    def __init__(self, spark: SparkSession, root: str, ledger: Ledger, work: Path) -> None:
        self._spark, self._root, self._ledger, self._work = spark, root, ledger, work
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._positions: dict[int, int] = {}
        self._wrong: list[str] = []
        self.start_stream()

    def fault(self, text: str) -> None:
        self.faults.append(text)
        print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)

    # ------------------------------------------------------------ a stream

    def start_stream(self) -> None:
        frame = self._spark.readStream.format("seeklog").option("path", self._root).option("subscribe", PLAIN).load()
        writer = frame.select("partition", "offset", "value").writeStream
        writer = writer.option("checkpointLocation", str(self._work / "checkpoint"))
        self.stream = writer.foreachBatch(self._take).start()

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = sorted((row.partition, row.offset, bytes(row.value)) for row in frame.collect())
        positions = dict(self._positions)
        wrong = []
        for partition, offset, value in rows:
            expected = positions.get(partition, offset)
            fields = check_value(value)
            if offset != expected or (fields.partition, fields.number) != (partition, offset):
                wrong.append(f"wrong answer: the stream gives {partition} {offset} {fields}, expected {expected}")
            positions[partition] = offset + 1
        self._wrong += wrong[:3]
        self._positions = positions
        self.counts["records"] += len(rows)
        self.counts["stream batches"] += 1

    def look_at_stream(self) -> None:
        """Record an unexpected end of the stream, and start it again."""
        while self._wrong:
            self.fault(self._wrong.pop())
        if self.stream.isActive:
            return
        if all(self._positions.get(partition, 0) >= start for partition, start in enumerate(self._starts())):
            self.fault(f"false alarm: the stream ended: {str(self.stream.exception())[:1500]}")
        else:
            self.counts["outrun by deletions"] += 1
        self._work = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=self._work))
        self._positions = {}
        self.start_stream()

    def _starts(self) -> list[int]:
        return [self._ledger.start(partition) for partition in range(PARTITIONS)]

    # ------------------------------------------------------------ batches

    def read_plain(self) -> None:
        acked = [self._ledger.acked(partition) for partition in range(PARTITIONS)]
        rows = self._read(PLAIN)
        starts = self._starts()
        for partition in range(PARTITIONS):
            offsets = [row[1] for row in rows if row[0] == partition]
            if acked[partition] <= starts[partition]:
                continue
            expect(bool(offsets), "nothing of", PLAIN, partition, "acknowledged:", acked[partition])
            expect(offsets == list(range(offsets[0], offsets[-1] + 1)), "a gap in", PLAIN, partition)
            expect(offsets[0] <= starts[partition], "begins at", offsets[0], "start", starts[partition])
            expect(offsets[-1] + 1 >= acked[partition], "ends at", offsets[-1], "acknowledged:", acked[partition])
        for number, offset, _, value in rows:
            fields = check_value(value)
            expect((fields.topic, fields.partition, fields.number) == (PLAIN, number, offset), number, offset, fields)

    def read_compacted(self) -> None:
        before = [self._ledger.acked_of_key(key) for key in range(KEYS)]
        newest = [-1] * KEYS
        rows = self._read(COMPACTED)
        for _, _, key, value in rows:
            newest[key_number(key)] = check_value(value).number
        span = [(len(rows), rows[0][1], rows[-1][1])] if rows else []
        self.counts["keys at rest"] += self._ledger.check_newest(before, newest, "of", span)

    def _read(self, topic: str) -> list[tuple[int, int, bytes, bytes]]:
        frame = self._spark.read.format("seeklog").option("path", self._root).option("subscribe", topic).load()
        table: Any = frame.select("partition", "offset", "key", "value").toArrow()
        rows = sorted(zip(*(table.column(n).to_pylist() for n in range(4)), strict=True))
        self.counts["records"] += len(rows)
        self.counts["answers"] += 1
        return rows

    def ask(self) -> None:
        for question in (self.read_plain, self.read_compacted, self.look_at_stream):
            starts = self._starts()
            try:
                question()
            except Exception as error:
                if "DATA_LOSS" in str(error) and starts != self._starts():
                    self.counts["outrun by deletions"] += 1
                    continue
                kind = "wrong answer" if isinstance(error, WrongAnswer) else "false alarm"
                self.fault(f"{kind}: Spark, {question.__name__}: {str(error)[:1500]}")


class Complaints(logging.Handler):
    """Records the messages of seeklog's logger in the driver."""

    def __init__(self, reader: SparkReader) -> None:
        super().__init__(logging.WARNING)
        self._reader = reader

    def emit(self, record: logging.LogRecord) -> None:
        self._reader.fault(f"false alarm: logged {record.getMessage()}")


def main() -> None:
    root, ledger, report, _ = sys.argv[1:]
    over = when_input_ends()
    work = Path(tempfile.mkdtemp(prefix="spark-", dir=Path(report).parent))
    logs = work / "log4j2.properties"
    logs.write_text("rootLogger.level = off\n")
    config = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile={logs}",
    }
    with session("soak", master="local[1]", config=config) as spark:
        reader = SparkReader(spark, root, Ledger(Path(ledger)), work)
        logging.getLogger("seeklog").addHandler(Complaints(reader))
        while not over.is_set():
            reader.ask()
        reader.stream.stop()
    Path(report).write_text(json.dumps({"counts": reader.counts, "faults": reader.faults}))


if __name__ == "__main__":
    main()
