"""`seeklog delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seeklog import names
from seeklog.cli import opening
from seeklog.cli.app import verb
from seeklog.cli.consent import consent_options
from seeklog.cli.show import amounts
from seeklog.cli.show.terminal import Terminal

if TYPE_CHECKING:
    from seeklog.store import Store


@verb
@opening.directory
@opening.topic
@consent_options
def delete(terminal: Terminal, directory: str, topic: str, is_dry: bool, is_agreed: bool) -> None:
    """Delete a topic with all of its records, and with what groups have committed for it.

    Asks first. The topic is gone for everybody at once, or it stays whole: so if another process writes to it.
    """
    names.check_not_internal(topic)
    opening.check_can_be_written(directory)
    with opening.open_to_read(directory) as store:
        what = _told(store, topic)
    if is_dry:
        terminal.tell(f"would delete {what}")
        return
    terminal.confirm(f"Delete {what}?", is_agreed=is_agreed)
    with opening.open_to_write(directory) as store:
        store.delete_topic(topic)
    terminal.say(f"deleted {what}")


def _told(store: Store, topic: str) -> str:
    described = store.describe_topic(topic)
    count = len(described.partitions)
    told = (
        f"{topic}: {count} partition{'s' if count > 1 else ''}, {amounts.count(described.record_count)} records, "
        f"{amounts.size(described.size_bytes)}"
    )
    groups = [
        group
        for group in store.groups()
        if any(partition.topic == topic for partition in store.describe_group(group).committed)
    ]
    return f"{told}, and the offsets of {', '.join(groups)}" if groups else told
