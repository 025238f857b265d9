"""The verbs in the order in which help shows them: a name, a line, an example.

They stand here and not beside their code, so that `seeklog --help` need not load all of it.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Entry(NamedTuple):
    name: str
    line: str
    example: str

    @property
    def module(self) -> str:
        return f"seeklog.cli.verbs.{self.name}"


GROUPS: Final[tuple[tuple[str, tuple[Entry, ...]], ...]] = (
    (
        "Topics",
        (
            Entry("ls", "list the topics of a store", "seeklog ls data"),
            Entry("create", "make a topic", "seeklog create data orders -p 4 --set retention.ms=604800000"),
            Entry(
                "config", "show or change a topic's configuration", "seeklog config data orders --set segment.ms=60000"
            ),
            Entry("delete", "delete a topic with all of its records", "seeklog delete data orders --dry-run"),
        ),
    ),
    (
        "Read",
        (
            Entry("cat", "read records", "seeklog cat data orders --from @-15m --where 'value.paise > 500'"),
            Entry("tail", "read the newest records, and follow", "seeklog tail -f data orders"),
            Entry("seek", "find an offset or a time, and tell how", "seeklog seek data orders @2026-01-02T03:04"),
            Entry("key", "read the newest record of a key", "seeklog key data orders customer_7"),
            Entry(
                "export", "write records to Parquet, CSV or JSON lines", "seeklog export data orders -o orders.parquet"
            ),
            Entry(
                "sql", "query topics with DuckDB", "seeklog sql data 'select count(*) from orders where partition = 0'"
            ),
        ),
    ),
    (
        "Write",
        (Entry("append", "write records from a file or stdin", "seeklog append data orders payments.txt --key-sep :"),),
    ),
    (
        "Inspect and mend",
        (
            Entry("info", "describe a store or a topic, or draw it", "seeklog info data orders --map"),
            Entry("dump", "show what is in files, byte by byte", "seeklog dump data/orders-0 --records"),
            Entry("verify", "check every byte that can be checked", "seeklog verify data"),
            Entry("report", "write an HTML page about a store", "seeklog report data -o report.html"),
            Entry("repair", "set damage aside and save what is whole", "seeklog repair data orders-0 --dry-run"),
            Entry("reindex", "make indexes anew that are wrong", "seeklog reindex data orders --dry-run"),
        ),
    ),
    (
        "Housekeeping",
        (
            Entry("retain", "delete what is too old or too much", "seeklog retain data --dry-run"),
            Entry("compact", "keep the latest record of each key", "seeklog compact data customers"),
            Entry("truncate", "delete the oldest records, or the newest", "seeklog truncate data orders --before @-7d"),
            Entry("handover", "give a store to a Kafka broker, or take it back", "seeklog handover data --to-kafka"),
            Entry(
                "archive", "copy sealed segments to a directory or a bucket", "seeklog archive data s3://bucket/store"
            ),
        ),
    ),
    (
        "Groups",
        (
            Entry("groups", "list consumer groups, or show or delete one", "seeklog groups data billing"),
            Entry("lag", "show how far groups are behind", "seeklog lag data"),
            Entry("reset", "set where a group reads on", "seeklog reset data billing orders --to @-15m --dry-run"),
        ),
    ),
    (
        "Pipelines",
        (Entry("pipeline", "run a job of Spark's over a store", "seeklog pipeline stats data"),),
    ),
    (
        "More",
        (
            Entry("demo", "show what seeklog does, in two minutes", "seeklog demo"),
            Entry("bench", "measure this machine in some seconds", "seeklog bench"),
            Entry("completion", "print what makes a shell complete words with Tab", "seeklog completion bash"),
        ),
    ),
)

VERBS: Final = {entry.name: entry for _, entries in GROUPS for entry in entries}
