"""The `server.properties` of a single broker over a store, and the command that starts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seeklog.errors import UsageError

PORT_MAX: Final = 65535
COMMAND: Final = "bin/kafka-server-start.sh server.properties"


@dataclass(frozen=True, slots=True)
class Listener:
    """The address of a broker. Its controller listens on the next port, on 127.0.0.1."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listener:
        """Parse `HOST:PORT`."""
        host, colon, port = text.rpartition(":")
        is_port = port.isascii() and port.isdigit() and 1 <= int(port) < PORT_MAX
        if not colon or not host or not is_port or any(sign.isspace() or sign in ",/" for sign in host):
            raise UsageError(
                f"a listener is HOST:PORT with a port from 1 to {PORT_MAX - 1}, because the controller uses the next "
                f"one, not {text!r}; pass one such as 127.0.0.1:9092"
            )
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


DEFAULT_LISTENER: Final = Listener("127.0.0.1", 9092)


def server_properties(root: str, *, node_id: int, listener: Listener, offsets_partitions: int | None) -> list[str]:
    """Return the lines of a `server.properties` for a broker that is its own controller.

    `offsets_partitions` is the partition count of `__consumer_offsets`, or None if the topic does not exist yet.
    """
    controller = f"127.0.0.1:{listener.port + 1}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://{listener},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{listener}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{node_id}@{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": root,
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    if offsets_partitions is not None:
        settings["offsets.topic.num.partitions"] = str(offsets_partitions)
    return [f"{setting}={_escaped(value)}" for setting, value in settings.items()]


def _escaped(value: str) -> str:
    """Escape a value for Java's Properties: Latin-1, with escapes for other characters and for the backslash."""
    out = []
    for sign in value.replace("\\", "\\\\"):
        if sign.isascii():
            out.append(sign)
        else:
            units = sign.encode("utf-16-be")
            out += [f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)]
    return "".join(out)
