"""`seeklog handover`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.exits import Exit
from seeklog.cli.opening import check_can_be_written
from seeklog.cli.options import Consent
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.outfile import whole_file
from seeklog.cli.show.rows import PARTITION, Column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.config import LogConfig
from seeklog.errors import UsageError

if TYPE_CHECKING:
    from seeklog.handover.plan import LocalStore, Step

COLUMNS = (Column("action"), *PARTITION, *map(Column, ("setting", "value", "file", "detail")))
OF_NEW = ("kafka_version", "node_id", "properties")
OF_INTO = ("metadata", "group_offsets")


@verb
@options.directory
@click.option("--to-kafka", is_flag=True, help="Prepare DIR for a broker: as a new cluster, or with --into.")
@click.option("--from-kafka", is_flag=True, help="Report what a broker changed in DIR, and take it back.")
@click.option("--kafka-version", metavar="VERSION", help="The version of the new cluster.  [default: 4.3]")
@click.option("--node-id", type=int, help="The id of the new cluster's node.  [default: 1]")
@click.option("--listener", metavar="HOST:PORT", help="Where the broker listens.  [default: 127.0.0.1:9092]")
@click.option("--properties", metavar="FILE", help="Write server.properties there, too.")
@click.option("--into", metavar="DATA_DIR", help="Copy into the directory of a cluster's stopped broker.")
@click.option("--metadata", metavar="DIR", help="With --into: where __cluster_metadata-0 lies.")
@click.option("--group-offsets", metavar="FILE", help="With --into: where the offsets of groups are written.")
@click.option("--set", "words", multiple=True, metavar="WORD=VALUE", help="Holds for topics that say nothing else.")
@options.consent
@options.rows
def handover(
    terminal: Terminal,
    directory: str,
    to_kafka: bool,
    from_kafka: bool,
    words: tuple[str, ...],
    consent: Consent,
    row_format: str | None,
    **given: Any,
) -> int | None:
    """Hand a store over to a Kafka broker, or take it back.

    With --to-kafka the store becomes, in place, the data directory of a new cluster of one node: its topics, records,
    settings and groups are there when a broker starts on it. No record is copied or deleted. With --into the partitions
    are copied into the directory of a broker that has a cluster; its topics must be there, empty, with one replica.

    With --from-kafka the store is compared with what seeklog left, and then taken back.

    Shows what it would do, and asks. Where nobody can be asked, it does nothing more, unless --yes is given. Processes
    that open the store with a configuration of their own name it with --set: above all retention.ms.
    """
    if to_kafka == from_kafka:
        raise UsageError("say which way: --to-kafka or --from-kafka")
    check_can_be_written(directory)
    others: tuple[str, ...]
    if from_kafka:
        way, others = "--from-kafka", ("into", *OF_INTO, *OF_NEW, "listener")
    elif given["into"] is not None:
        way, others = "--into", OF_NEW
    else:
        way, others = "a new cluster, which has no --into", OF_INTO
    for name in others:
        if given[name] is not None:
            raise UsageError(f"--{name.replace('_', '-')} does not go with {way}; leave it out")
    run = _Run(terminal, directory, LogConfig.from_mapping(options.parse_config(words)), consent, row_format)
    if from_kafka:
        return _take_back(run)
    if given["into"] is not None:
        return _copy_into(run, given["into"], given["metadata"], given["group_offsets"], given["listener"])
    _hand_over_in_place(run, given["kafka_version"], given["node_id"], given["listener"], given["properties"])
    return None


@dataclass(frozen=True, slots=True)
class _Run:
    """One call of the verb: what all of its ways share."""

    terminal: Terminal
    directory: str
    config: LogConfig
    consent: Consent
    row_format: str | None

    def store(self) -> LocalStore:
        from seeklog.handover.plan import LocalStore

        return LocalStore(self.directory, self.config)

    def show(self, steps: Iterable[Step]) -> None:
        rows = [asdict(step) for step in steps]
        shown = [column for column in COLUMNS if any(row[column.name] is not None for row in rows)]
        write_rows(self.terminal, shown or COLUMNS, rows, row_format=self.row_format)

    def may_do(self, what: str) -> bool:
        return self.consent.to_plan(self.terminal, f"would {what}", question=f"This would {what}")


def _hand_over_in_place(
    run: _Run, kafka_version: str | None, node_id: int | None, listener: str | None, properties: str | None
) -> None:
    from seeklog.handover.in_place import LATEST_VERSION, Broker, hand_over_in_place, plan_in_place
    from seeklog.handover.properties import COMMAND, DEFAULT_LISTENER, Listener

    broker = Broker(
        kafka_version=kafka_version or LATEST_VERSION,
        node_id=1 if node_id is None else node_id,
        listener=Listener.parse(listener) if listener is not None else DEFAULT_LISTENER,
    )
    if properties is not None and os.path.lexists(properties):
        # Before anything is written: afterwards the store is handed over, and the file missing.
        raise UsageError(f"{properties} is there already; name another file")
    store = run.store()
    plan = plan_in_place(store, broker=broker)
    run.show(plan.steps())
    partitions = amounts.counted(len(plan.store.partitions), "partition")
    if not run.may_do(f"prepare {run.directory}, with {partitions}, for a new cluster"):
        return
    lines = hand_over_in_place(store, broker=broker).properties()
    if properties is not None:
        with whole_file(properties, replaces=False) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
    run.terminal.say(f"prepared {run.directory} for Kafka {broker.kafka_version}. Its server.properties:")
    for line in lines:
        run.terminal.tell(neutral(line))
    run.terminal.say(f"Start the broker with: {COMMAND}")


def _copy_into(
    run: _Run, data_dir: str, metadata_dir: str | None, group_offsets: str | None, listener: str | None
) -> int | None:
    from seeklog.handover.into import Target, hand_over_into, plan_into
    from seeklog.handover.properties import DEFAULT_LISTENER, Listener

    store = run.store()
    target = Target(
        data_dir,
        metadata_dir=metadata_dir,
        offsets_path=os.path.abspath(group_offsets) if group_offsets is not None else None,
        bootstrap=str(Listener.parse(listener) if listener is not None else DEFAULT_LISTENER),
    )
    plan = plan_into(store, target)
    run.show(plan.steps())
    if plan.missing:
        lacking = amounts.counted(len(plan.missing), "topic")
        run.terminal.tell(
            f"seeklog: the cluster lacks {lacking}. Start its broker, create them with the commands below, stop it, "
            "then run this again"
        )
        for command in plan.create_commands():
            run.terminal.tell(neutral(command))
        return Exit.FAILED
    size = sum(copy.size_bytes for copy in plan.copies if not copy.is_there)
    what = f"copy {amounts.counted(len(plan.copies), 'partition')}, {amounts.size(size)}, into {data_dir}"
    if not run.may_do(what):
        return None
    with run.terminal.progress("copying", total=size, unit="bytes") as shown:
        done = hand_over_into(store, target, advance=shown.advance)
    run.terminal.say(f"copied {amounts.counted(len(done.copies), 'partition')} into {data_dir}. Start its broker again")
    reset = done.reset_command()
    if reset is not None:
        run.terminal.say("Then give the groups their offsets, before their consumers start:")
        run.terminal.tell(neutral(reset))
    return None


def _take_back(run: _Run) -> int | None:
    from seeklog.handover.back import plan_back, take_back

    store = run.store()
    plan = plan_back(store)
    run.show(plan.steps)
    if not plan.has_metadata:
        run.terminal.say("the cluster's metadata are not here: settings were not compared")
    if run.may_do(f"take {run.directory} back, with {amounts.counted(len(plan.changed), 'changed partition')}"):
        take_back(store)
        run.terminal.say(f"took {run.directory} back; for the way out again, close it and start its broker")
    return None
