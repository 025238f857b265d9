"""A real Kafka broker on 127.0.0.1: one node that is also the controller.

`kafka_jars.py` finds its jars. A broker ends when the process that started it ends, for any reason.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from interop.kafka_jars import Jars

START_TIMEOUT_S: Final = 180.0
STOP_TIMEOUT_S: Final = 180.0
READY_TIMEOUT_S: Final = 60.0
CLUSTER_ID: Final = "c2Vla2xvZy1nb2xkZW4tMA"  # any 16 bytes in base64url

# Small and fast: one replica, few partitions of internal topics, indexes preallocated at a few kilobytes, and a cleaner
# that checks five times a second.
PROPERTIES: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "4096",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.threads": "1",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.retention.ms": "-1",
}

# Little memory and fast compilation, because a broker of the tests lives for seconds.
JAVA_OPTIONS: Final = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
# Below the ports of outgoing connections on Linux, macOS and the BSDs.
_LISTENING_PORTS: Final = range(20_000, 32_000)
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


class RealBroker:
    """A broker over a data directory. It can be started again after `stop` or `kill`."""

    def __init__(
        self,
        jars: Jars,
        work: Path,
        *,
        data: Path | None = None,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._jars = jars
        self.data = data or work / "data"
        self.log_path = work / "broker.log"
        self._properties = work / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        port, controller_port = _free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        settings = {
            **PROPERTIES,
            **properties,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(self.data),
        }
        self._properties.write_text("".join(f"{word}={value}\n" for word, value in settings.items()))

    @property
    def version(self) -> str:
        return self._jars.version

    def format(self) -> None:
        """Create the data directory of a new cluster."""
        self.run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties))

    def run_tool(self, name: str, *arguments: str) -> str:
        """Run one of the broker's tools and return its output."""
        command = self.java(name, *arguments)
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    def start(self) -> None:
        """Start the broker and wait until it answers."""
        with self.log_path.open("ab") as log:
            self._process = self._spawn(log)
        deadline = time.monotonic() + START_TIMEOUT_S
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        while True:
            assert self._process.poll() is None, f"the broker gave up, see {self.log_path}"
            try:
                admin.list_topics(timeout=1)
                return
            except KafkaException:
                assert time.monotonic() < deadline, f"the broker does not answer, see {self.log_path}"

    def stop(self) -> None:
        """Shut the broker down cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the broker."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise
            finally:
                atexit.unregister(self._process.kill)
                self._process = None

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.java("kafka.Kafka", str(self._properties)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C goes to the tests, which stop the broker
            preexec_fn=_die_with_parent,
        )
        atexit.register(process.kill)
        return process

    def java(self, name: str, *arguments: str) -> list[str]:
        """Return the command that runs a class or a source file with the jars of the broker."""
        java = Path(os.environ["JAVA_HOME"]) / "bin/java" if "JAVA_HOME" in os.environ else "java"
        return [str(java), *JAVA_OPTIONS, "-cp", self._jars.classpath, name, *arguments]


def _die_with_parent() -> None:
    """Make this process die with its parent, so that a killed test leaves no broker."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    """Return unused ports outside of the ephemeral range.

    A broker starts seconds later, and again after a kill, when an ephemeral port may be in use.
    """
    ports: list[int] = []
    for port in random.SystemRandom().sample(_LISTENING_PORTS, len(_LISTENING_PORTS)):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise AssertionError("every port to listen on is taken")


def retry_until_ready(ask: Callable[[], Any]) -> Any:
    """Call `ask` again while it raises: a broker that has just started may lack leaders and groups."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
