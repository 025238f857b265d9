"""An S3 API on loopback, moto's, that records requests and counts the bytes of its responses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET = "cold"


@dataclass
class Traffic:
    """The requests since the last `clear`: (method, path and query) of each, and the bytes of the responses."""

    requests: list[tuple[str, str]] = field(default_factory=list)
    size: int = 0

    def clear(self) -> None:
        self.requests = []
        self.size = 0

    def of(self, method: str, suffix: str = "") -> list[str]:
        """Return the requested paths with a method and a suffix."""
        return [path for each, path in self.requests if each == method and path.partition("?")[0].endswith(suffix)]


class S3Server:
    """A server with one bucket."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._count, threaded=True, request_handler=_Silent)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.options: dict[str, Any] = {"key": "test", "secret": "secret-word", "endpoint_url": self.endpoint}
        self.system = fsspec.filesystem("s3", use_listings_cache=False, **self.options)
        # moto keeps its state for the whole process, so another server may have created the bucket.
        self.system.makedirs(BUCKET, exist_ok=True)
        self.traffic.clear()

    def _count(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        self.traffic.requests.append(
            (environ["REQUEST_METHOD"], f"{environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}")
        )
        for part in self._app(environ, start_response):
            self.traffic.size += len(part)
            yield part

    def upload(self, directory: Path, prefix: str) -> str:
        """Copy a directory into the bucket. Return its URL."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.system.pipe_file(f"{BUCKET}/{prefix}/{path.relative_to(directory)}", path.read_bytes())
        self.traffic.clear()
        return f"s3://{BUCKET}/{prefix}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Silent(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        pass


@contextmanager
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    try:
        yield server
    finally:
        server.stop()
