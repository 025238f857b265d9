"""The subcommands in the order of the help, apart from their code so that `seeklog --help` does not import it."""

from __future__ import annotations

from typing import Final, NamedTuple


class Entry(NamedTuple):
    name: str
    line: str
    arguments: str
    """The arguments of the example in the help."""
    file: str
    """The name of its module in `verbs`."""

    @property
    def example(self) -> str:
        return f"seeklog {self.name} {self.arguments}".rstrip()

    @property
    def module(self) -> str:
        return f"seeklog.cli.verbs.{self.file}"


GROUPS: Final[dict[str, tuple[Entry, ...]]] = {
    "Topics": (
        Entry("ls", "list the topics of a store", "data", "topics"),
        Entry("create", "create a topic", "data orders -p 4 --set retention.ms=604800000", "topics"),
        Entry("config", "show or change a topic's configuration", "data orders --set segment.ms=60000", "topics"),
        Entry("delete", "delete a topic and all its records", "data orders --dry-run", "topics"),
    ),
    "Read": (
        Entry("cat", "read records", "data orders --from @-15m --where 'value.paise > 500'", "reading"),
        Entry("tail", "read the newest records, and follow a topic", "-f data orders", "reading"),
        Entry("seek", "locate an offset or a time on disk", "data orders @2026-01-02T03:04", "reading"),
        Entry("key", "read the newest record of a key", "data orders customer_7", "reading"),
        Entry("export", "write records to Parquet, CSV or JSON lines", "data orders -o orders.parquet", "export"),
        Entry("sql", "query topics with DuckDB", "data 'select count(*) from orders where partition = 0'", "sql"),
    ),
    "Write": (
        Entry("append", "append records from a file or stdin", "data orders payments.txt --key-sep :", "append"),
    ),
    "Inspect and repair": (
        Entry("info", "describe a store or a topic, or draw its log", "data orders --map", "info"),
        Entry("dump", "show the contents of log files", "data/orders-0 --records", "dump"),
        Entry("verify", "check every byte that can be checked", "data", "verify"),
        Entry("report", "write an HTML page about a store", "data -o report.html", "report"),
        Entry("repair", "quarantine damage and keep intact records", "data orders-0 --dry-run", "repair"),
        Entry("reindex", "rebuild wrong indexes", "data orders --dry-run", "reindex"),
    ),
    "Housekeeping": (
        Entry("retain", "delete segments past their retention", "data --dry-run", "housekeeping"),
        Entry("compact", "keep the latest record of each key", "data customers", "housekeeping"),
        Entry("truncate", "delete the oldest or the newest records", "data orders --before @-7d", "housekeeping"),
        Entry("handover", "hand a store over to a Kafka broker, or take it back", "data --to-kafka", "handover"),
        Entry("roll", "close the active segments of a topic", "data orders", "roll"),
        Entry("archive", "copy topics to a directory or a bucket", "data s3://bucket/store --all", "archive"),
        Entry("restore", "restore an archive to a new store", "s3://bucket/store restored", "archive"),
    ),
    "Groups": (
        Entry("groups", "list, describe or delete consumer groups", "data billing", "groups"),
        Entry("lag", "show the lag of consumer groups", "data", "groups"),
        Entry("reset", "set the committed offsets of a group", "data billing orders --to @-15m --dry-run", "groups"),
    ),
    "Pipelines": (Entry("pipeline", "run a Spark job over a store", "stats data", "pipeline"),),
    "More": (
        Entry("demo", "see what seeklog does, in two minutes", "", "demo"),
        Entry("bench", "measure seeklog on this machine", "", "bench"),
        Entry("completion", "print a shell completion script", "bash", "completion"),
    ),
}

VERBS: Final = {entry.name: entry for entries in GROUPS.values() for entry in entries}
