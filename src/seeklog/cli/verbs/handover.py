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
@click.option("--to-kafka", is_flag=True, help="Hand DIR over to a broker: as a new cluster, or with --into.")
@click.option("--from-kafka", is_flag=True, help="Take DIR back, and show what a broker changed.")
@click.option("--kafka-version", metavar="VERSION", help="Kafka version of the new cluster.  [default: 4.3]")
@click.option("--node-id", type=int, help="Node id of the new cluster.  [default: 1]")
@click.option("--listener", metavar="HOST:PORT", help="Address of the broker.  [default: 127.0.0.1:9092]")
@click.option("--properties", metavar="FILE", help="Also write the new server.properties to FILE.")
@click.option("--into", metavar="DATA_DIR", help="Copy into the data directory of a stopped broker.")
@click.option("--metadata", metavar="DIR", help="With --into: the directory that contains __cluster_metadata-0.")
@click.option("--group-offsets", metavar="FILE", help="With --into: write the committed offsets of groups to FILE.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Default for topics that do not set it.")
@options.consent
@options.rows
def handover(
    terminal: Terminal,
    directory: str,
    to_kafka: bool,
    from_kafka: bool,
    settings: tuple[str, ...],
    consent: Consent,
    **given: Any,
) -> int | None:
    """Hand a store over to a Kafka broker, or take it back.

    --to-kafka turns the store, in place, into the data directory of a new cluster with one node. A broker started on
    it finds the topics, records, settings and groups. No record is copied or deleted. With --into, the partitions are
    copied into the data directory of an existing cluster's broker; the topics must exist there, empty and with one
    replica.

    --from-kafka compares the store with its state at the handover, and takes it back.

    Shows the plan, and asks. Without a terminal to ask on, it only shows the plan, unless --yes is given. If your
    program opens the store with its own configuration, pass it with --set, especially retention.ms.
    """
    if to_kafka == from_kafka:
        raise UsageError("pass either --to-kafka or --from-kafka")
    check_can_be_written(directory)
    excluded: tuple[str, ...]
    if from_kafka:
        way, excluded = "--from-kafka", ("into", *OF_INTO, *OF_NEW, "listener")
    elif given["into"] is not None:
        way, excluded = "--into", OF_NEW
    else:
        way, excluded = "--to-kafka without --into", OF_INTO
    for name in excluded:
        if given[name] is not None:
            raise UsageError(f"--{name.replace('_', '-')} does not apply to {way}; leave it out")
    run = _Run(terminal, directory, LogConfig.from_mapping(options.parse_config(settings)), consent)
    if from_kafka:
        return _take_back(run)
    if given["into"] is not None:
        return _copy_into(run, given["into"], given["metadata"], given["group_offsets"], given["listener"])
    _hand_over_in_place(run, given["kafka_version"], given["node_id"], given["listener"], given["properties"])
    return None


@dataclass(frozen=True, slots=True)
class _Run:
    """The arguments that all directions of the handover share."""

    terminal: Terminal
    directory: str
    config: LogConfig
    consent: Consent

    def store(self) -> LocalStore:
        from seeklog.handover.plan import LocalStore

        return LocalStore(self.directory, self.config)

    def show(self, steps: Iterable[Step]) -> None:
        rows = [asdict(step) for step in steps]
        shown = [column for column in COLUMNS if any(row[column.name] is not None for row in rows)]
        write_rows(self.terminal, shown or COLUMNS, rows)

    def may_do(self, change: str) -> bool:
        return self.consent.to_plan(self.terminal, change)


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
        # Checked first: a handover without this file would be incomplete.
        raise UsageError(f"{properties} already exists; name another file")
    store = run.store()
    plan = plan_in_place(store, broker=broker)
    run.show(plan.steps())
    partitions = amounts.counted(len(plan.store.partitions), "partition")
    if not run.may_do(f"hand over {run.directory}, with {partitions}, to a new cluster"):
        return
    with run.terminal.progress("handing over", stopped="run it again to complete the handover"):
        lines = hand_over_in_place(store, broker=broker).properties()
    if properties is not None:
        with whole_file(properties, replaces=False) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
    run.terminal.say(f"handed over {run.directory} to Kafka {broker.kafka_version}. Its server.properties:")
    for line in lines:
        run.terminal.report(neutral(line))
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
        run.terminal.report(
            f"seeklog: the cluster lacks {lacking}. Start its broker, run the commands below, stop the broker, "
            "then run this command again"
        )
        for command in plan.create_commands():
            run.terminal.report(neutral(command))
        return Exit.FAILED
    size = sum(copy.size_bytes for copy in plan.copies if not copy.is_there)
    change = f"copy {amounts.counted(len(plan.copies), 'partition')}, {amounts.size(size)}, into {data_dir}"
    if not run.may_do(change):
        return None
    with run.terminal.progress("copying", total=size, unit="bytes", stopped="run it again to continue") as shown:
        done = hand_over_into(store, target, advance=shown.advance)
    run.terminal.say(f"copied {amounts.counted(len(done.copies), 'partition')} into {data_dir}. Start its broker again")
    reset = done.reset_command()
    if reset is not None:
        run.terminal.say("Then set the offsets of the groups, before any consumer starts:")
        run.terminal.report(neutral(reset))
    return None


def _take_back(run: _Run) -> int | None:
    from seeklog.handover.back import plan_back, take_back

    store = run.store()
    plan = plan_back(store)
    run.show(plan.steps)
    if not plan.has_metadata:
        run.terminal.say("the cluster metadata is not in this directory: settings were not compared")
    if run.may_do(f"take {run.directory} back, with {amounts.counted(len(plan.changed), 'changed partition')}"):
        with run.terminal.progress(f"taking {run.directory} back", stopped="run it again to complete it"):
            take_back(store)
        run.terminal.say(f"took {run.directory} back. To return it to its broker, close it and start the broker")
    return None
