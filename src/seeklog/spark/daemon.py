"""PySpark's daemon that forks Python workers, without the traceback when Spark has gone before a worker is done.

With unix sockets the two ends do not always close in the same order, and a worker that finds the other one closed
would print a traceback, though all of its rows were taken. Sessions of `seeklog.spark.session()` start it in the place
of PySpark's. The engine is imported before the fork, so that not every worker has to.
"""

from __future__ import annotations

import socket

from pyspark import daemon

import seeklog  # noqa: F401  (what workers will need)

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Do what PySpark's worker does; one whose other end is closed ends as if it had been told to."""
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        return 1


daemon.worker = worker

if __name__ == "__main__":
    daemon.manager()
