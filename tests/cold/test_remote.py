"""Stores at a URL: read as from a directory, in few and small requests, and never written."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pytest

import seeklog
from cold.s3_server import BUCKET, S3Server
from interop.broker_directories import NAMES, expected_rows, rows
from interop.test_real_broker import unpacked
from interop.test_real_broker_store import check_all_partitions, partitions_of
from log.workbench import START_MS, value_of
from seeklog import Log, Store, TopicPartition
from seeklog.errors import LostRecords, NotAccessible, NotALog, OffsetOutOfRange, SeeklogError, UsageError
from seeklog.files.readahead import FIRST_BYTES
from seeklog.files.remote import RemoteFiles
from seeklog.log.check.inspection import inspect_partition
from store.workbench import append, open_store, snapshot

__all__ = ["unpacked"]  # the fixture

# Batches of 100 records of 100 bytes, 20 per segment.
RECORDS, SEGMENTS = 10_000, 5
long_value = partial(value_of, size=100)
PATIENT = {"config_kwargs": {"connect_timeout": 1, "read_timeout": 1, "retries": {"max_attempts": 0}}}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one topic of two partitions, closed cleanly; five segments in the first."""
    root = tmp_path_factory.mktemp("stores") / "store"
    with open_store(root, segment_bytes=230_000) as store:
        store.create_topic("orders", partitions=2)
        for first in range(0, RECORDS, 100):
            with store._table.writing(TopicPartition("orders", 0)) as log:
                log.append_many(
                    [
                        seeklog.Record(long_value(number), timestamp_ms=START_MS + number * 1000)
                        for number in range(first, first + 100)
                    ]
                )
        append(store, "orders", [b"alone"], partition=1)
        assert store.log("orders", 0).segment_count == SEGMENTS
    return root


def to_memory(directory: Path, url: str) -> str:
    system = fsspec.filesystem("memory")
    for path in directory.rglob("*"):
        if path.is_file():
            system.pipe_file(f"{url}/{path.relative_to(directory)}", path.read_bytes())
    return url


@pytest.fixture(params=["s3", "memory", "file"])
def place(request: pytest.FixtureRequest, directory: Path) -> tuple[str, dict[str, Any]]:
    """The store at three kinds of URLs, with the options that each needs."""
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        return server.upload(directory, "orders"), server.options
    if request.param == "memory":
        return to_memory(directory, request.getfixturevalue("memory")), {}
    return f"file://{directory}", {}


@pytest.fixture
def bucket(s3: S3Server, directory: Path) -> str:
    return s3.upload(directory, "orders")


@pytest.mark.parametrize("name", NAMES)
def test_broker_directory_in_bucket_reads_as_on_disk(unpacked: Path, name: str, s3: S3Server) -> None:
    with seeklog.open(s3.upload(unpacked / name, name), storage_options=s3.options) as store:
        assert store.topics() == sorted({p.topic for p in partitions_of(name) if not p.topic.startswith("__")})
        check_all_partitions(store, name)
        for partition in partitions_of(name):
            expected = expected_rows(name, str(partition))
            if expected:
                log = store.log(*partition)
                middle = log.log_start_offset + (log.high_watermark - log.log_start_offset) // 2
                found = [row for row in rows(log.read(middle, max_records=5), str(partition)) if row in expected]
                assert found
        with seeklog.open(unpacked / name, read_only=True) as local:
            assert store.groups() == local.groups()
            for group in local.groups():
                assert store.describe_group(group).offsets == local.describe_group(group).offsets
    assert not [method for method, _ in s3.traffic.requests if method not in ("GET", "HEAD")]


def test_store_at_url_reads_as_in_its_directory(place: tuple[str, dict[str, Any]], directory: Path) -> None:
    url, options = place
    with seeklog.open(url, storage_options=options) as cold, seeklog.open(directory, read_only=True) as warm:
        assert cold.topics() == warm.topics()
        assert cold.describe_topic("orders") == warm.describe_topic("orders")
        for number in (0, 1):
            ours, theirs = cold.log("orders", number), warm.log("orders", number)
            assert list(ours.scan()) == list(theirs.scan())
            assert list(ours.scan_reverse()) == list(theirs.scan_reverse())
            assert ours.last() == theirs.last()
        ours, theirs = cold.log("orders", 0), warm.log("orders", 0)
        for offset in (0, 1, 1999, 2000, 5_432, RECORDS - 1):
            assert list(ours.read(offset, max_records=3)) == list(theirs.read(offset, max_records=3))
            assert ours.seek(offset).position == theirs.seek(offset).position
            moment = START_MS + offset * 1000
            assert ours.offset_at_time(moment) == theirs.offset_at_time(moment) == offset
        assert ours.offset_at_time(START_MS + RECORDS * 1000) is None
        assert [batch.header for batch in ours.read_batches(4_000)] == [
            batch.header for batch in theirs.read_batches(4_000)
        ]
        assert ours.scan_arrow(3_000, 9_000).read_all() == theirs.scan_arrow(3_000, 9_000).read_all()
        with cold.consumer(["orders"], auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
            assert sum(1 for _ in consumer) == RECORDS + 1


def test_inspection_of_store_at_url_finds_no_damage(place: tuple[str, dict[str, Any]]) -> None:
    url, options = place
    assert inspect_partition(f"{url}/orders-0", files=RemoteFiles(url, storage_options=options)) == []


def test_follow_of_log_at_url_stops_at_its_end(memory: str, directory: Path) -> None:
    with seeklog.open(to_memory(directory, memory)) as store:
        assert len(list(store.log("orders", 0).follow(RECORDS - 50))) == 50


# ---------------------------------------------------------------- requests


@pytest.mark.id("bucket-requests")
def test_reading_one_record_of_bucket_takes_a_dozen_requests(s3: S3Server, bucket: str) -> None:
    """Goal: the cost of opening and one seek does not depend on the number of segments and bytes."""
    with seeklog.open(bucket, storage_options=s3.options) as store:
        assert next(store.log("orders", 0).read(5_432, max_records=1)).value == long_value(5_432)
    # A manifest, the catalog and three checkpoints of the root; checkpoint, watermark, seal, two indexes and
    # the log of the partition; and both directories.
    assert len(s3.traffic.requests) == 13, s3.traffic.requests
    assert len(s3.traffic.of("GET", ".log")) <= 2
    assert len(s3.traffic.of("GET", ".seal")) <= 1
    assert s3.traffic.size < 3 * FIRST_BYTES


def test_each_further_record_of_open_store_takes_one_request(s3: S3Server, bucket: str) -> None:
    with seeklog.open(bucket, storage_options=s3.options) as store:
        log = store.log("orders", 0)
        next(log.read(5_432, max_records=1))
        s3.traffic.clear()
        # Other positions in the same segment, some 100 KB apart.
        for offset in (4_100, 5_100):
            assert next(log.read(offset, max_records=1)).value == long_value(offset)
            assert log.high_watermark == RECORDS
    assert len(s3.traffic.requests) == 2
    assert s3.traffic.size <= 2 * FIRST_BYTES + 2000


def test_scan_requests_every_byte_once_in_growing_requests(s3: S3Server, bucket: str, directory: Path) -> None:
    with seeklog.open(bucket, storage_options=s3.options) as store:
        log = store.log("orders", 0)
        s3.traffic.clear()
        assert sum(1 for _ in log.scan()) == RECORDS
    size = sum(path.stat().st_size for path in (directory / "orders-0").iterdir())
    assert s3.traffic.size < 1.2 * size
    # Each segment has 230 KB: a first request of 96 KB, and a second one for the rest.
    assert len(s3.traffic.of("GET", ".log")) <= 3 * SEGMENTS


def test_open_store_does_not_repeat_requests(s3: S3Server, bucket: str) -> None:
    with seeklog.open(bucket, storage_options=s3.options) as store:
        store.describe_topic("orders")
        s3.traffic.clear()
        store.describe_topic("orders")
        assert store.topics() == ["orders"]
        assert store.log("orders", 0).log_start_offset == 0
    assert s3.traffic.requests == []


def test_directory_is_listed_once(s3: S3Server, bucket: str) -> None:
    with seeklog.open(bucket, storage_options=s3.options) as store:
        store.describe_topic("orders")
        list(store.log("orders", 0).scan())
    lists = [path for method, path in s3.traffic.requests if "list-type" in path]
    assert len(lists) == len(set(lists)) == 3


# ---------------------------------------------------------------- refusals


def test_writes_to_url_are_refused_and_change_nothing(memory: str, directory: Path) -> None:
    url = to_memory(directory, memory)
    before = dict(fsspec.filesystem("memory").store)
    with pytest.raises(UsageError, match="can only be read; leave read_only out"):
        seeklog.open(url, read_only=False)
    with seeklog.open(url) as store:
        assert store.read_only
        for write in (
            store.producer,
            lambda: store.create_topic("other"),
            lambda: store.delete_topic("orders"),
            lambda: store.consumer(["orders"], group="g"),
            lambda: store.commit_offsets("g", {TopicPartition("orders", 0): 1}),
            store.maintain,
            lambda: store.writer("orders", 0),
        ):
            with pytest.raises(UsageError, match="read-only"):
                write()
    assert fsspec.filesystem("memory").store == before


def test_store_at_url_has_location_and_no_path(memory: str, directory: Path) -> None:
    with seeklog.open(to_memory(directory, memory) + "/") as store:
        assert store.location == memory
        assert store.log("orders", 0).location == f"{memory}/orders-0"
        assert memory in repr(store)
        assert memory in repr(store.log("orders", 0))
        with pytest.raises(UsageError, match="is a URL, not a path"):
            _ = store.path


def test_single_log_at_url_is_refused_and_creates_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"seeklog\.open"):
        Log("s3://bucket/orders-0")
    assert list(tmp_path.iterdir()) == []


def test_storage_options_without_url_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="storage_options are for URLs"):
        seeklog.open(tmp_path / "store", storage_options={"key": "x"})
    assert not (tmp_path / "store").exists()


def test_password_in_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="storage_options") as caught:
        seeklog.open("ftp://me:hunter2@host/logs")
    assert "hunter2" not in str(caught.value)


def test_unknown_scheme_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="nosuch") as caught:
        seeklog.open("nosuch://bucket/logs")
    assert "\n" not in str(caught.value)


def test_options_unknown_to_backend_are_refused() -> None:
    with pytest.raises(SeeklogError, match=r"no_such_option.*storage_options") as caught:
        seeklog.open("s3://bucket/logs", storage_options={"no_such_option": 1, "key": "k", "secret": "hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.id("bucket-unreachable")
def test_unreachable_bucket_raises_seeklog_error_in_one_line() -> None:
    options = {"key": "k", "secret": "hunter2", "endpoint_url": "http://127.0.0.1:9", **PATIENT}
    with pytest.raises(NotAccessible, match=r"s3://cold/orders.*storage_options, and the network") as caught:
        seeklog.open("s3://cold/orders", storage_options=options)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_missing_bucket_has_no_store(s3: S3Server) -> None:
    for url in ("s3://no-such-bucket/orders", f"s3://{BUCKET}/nothing/here"):
        with pytest.raises(NotALog, match=f"no store at {url}"):
            seeklog.open(url, storage_options=s3.options)
    assert not [path for method, path in s3.traffic.requests if method not in ("GET", "HEAD")]


def test_bucket_with_other_objects_is_not_a_store(s3: S3Server) -> None:
    s3.system.pipe_file(f"{BUCKET}/pictures/cat.jpg", b"meow")
    with pytest.raises(NotALog, match=r"cat\.jpg"):
        seeklog.open(f"s3://{BUCKET}/pictures", storage_options=s3.options)
    with pytest.raises(NotALog, match="is a file"):
        seeklog.open(f"s3://{BUCKET}/pictures/cat.jpg", storage_options=s3.options)


@pytest.mark.id("bucket-goes-away")
def test_bucket_deleted_under_reader_raises_seeklog_error(directory: Path) -> None:
    from cold.s3_server import s3_server

    with s3_server() as server:
        options = {**server.options, **PATIENT}
        store = seeklog.open(server.upload(directory, "orders"), storage_options=options)
        log = store.log("orders", 0)
        assert next(log.read(0, max_records=1)).offset == 0
    with store, pytest.raises(NotAccessible, match="storage_options, and the network"):
        list(log.read(9_000))


def test_missing_and_short_objects_are_reported_as_lost(memory: str, directory: Path) -> None:
    url = to_memory(directory, memory)
    system = fsspec.filesystem("memory")
    with seeklog.open(url) as store:
        log = store.log("orders", 0)
        second = log.seek(2_500).path
        data = system.cat_file(second)
        system.pipe_file(second, data[: len(data) // 2])
        with pytest.raises(LostRecords, match="ends after"):
            list(log.scan(2_000, 4_000))
    with seeklog.open(url) as store:
        log = store.log("orders", 0)
        system.rm_file(second)
        with pytest.raises(LostRecords, match="is missing"):
            list(log.scan(2_000, 4_000))
        with pytest.raises(OffsetOutOfRange):
            log.read(RECORDS + 1)


def test_damaged_index_in_bucket_is_rebuilt_in_memory(memory: str, directory: Path, caplog: Any) -> None:
    url = to_memory(directory, memory)
    system = fsspec.filesystem("memory")
    for path in system.glob(f"{memory}/orders-0/*.index"):
        system.pipe_file(path, b"\x7f" * 80)
    before = dict(system.store)
    with seeklog.open(url) as store:
        assert next(store.log("orders", 0).read(2_345, max_records=1)).value == long_value(2_345)
    assert "rebuilding the indexes" in caplog.text
    assert system.store == before


class _Pages(SimpleHTTPRequestHandler):
    """A web server like Python's own: it lists directories without sizes, and supports ranges only on request."""

    serves_ranges = True

    def do_GET(self) -> None:
        asked = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if asked is None or not self.serves_ranges or not path.is_file():
            super().do_GET()
            return
        data = path.read_bytes()[int(asked[1]) : int(asked[2]) + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def pages(directory: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The store on a web server; the parameter is whether it serves ranges."""
    handler = type("Pages", (_Pages,), {"serves_ranges": request.param})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("pages", [True], indirect=True)
def test_store_on_web_server_without_sizes_in_listings_is_readable(pages: str, directory: Path) -> None:
    with seeklog.open(pages) as cold, seeklog.open(directory, read_only=True) as warm:
        assert list(cold.log("orders", 0).scan(3_000, 5_000)) == list(warm.log("orders", 0).scan(3_000, 5_000))
        assert cold.log("orders", 0).high_watermark == RECORDS


@pytest.mark.parametrize("pages", [False], indirect=True)
def test_web_server_without_range_requests_is_refused(pages: str) -> None:
    with pytest.raises(NotAccessible, match="does not serve ranges"), seeklog.open(pages) as cold:
        list(cold.log("orders", 0).read(5_000))


# ---------------------------------------------------------------- processes


def _read_in_child(store: Store, queue: Any) -> None:
    queue.put(next(store.log("orders", 0).read(7_777, max_records=1)).value)


def test_forked_child_reads_through_its_own_connections(s3: S3Server, bucket: str) -> None:
    with seeklog.open(bucket, storage_options=s3.options) as store:
        list(store.log("orders", 0).read(0))
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_read_in_child, args=(store, queue))
        child.start()
        assert queue.get(timeout=30) == long_value(7_777)
        child.join()
        assert child.exitcode == 0


@pytest.fixture
def without_fsspec(tmp_path: Path) -> Iterator[list[str]]:
    """A Python that has everything but fsspec and s3fs."""
    (tmp_path / "fsspec.py").write_text("raise ModuleNotFoundError('no fsspec here', name='fsspec')")
    yield [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"]
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize(("url", "extra"), [("s3://bucket/x", "s3"), ("gs://bucket/x", "remote")])
def test_error_without_fsspec_names_extra_to_install(without_fsspec: list[str], url: str, extra: str) -> None:
    *python, code = without_fsspec
    code += f"import seeklog\ntry:\n    seeklog.open({url!r})\nexcept seeklog.SeeklogError as error:\n    print(error)"
    done = subprocess.run([*python, code], capture_output=True, text=True, check=True)
    assert f'pip install "seeklog[{extra}]"' in done.stdout


def test_importing_seeklog_imports_no_fsspec() -> None:
    code = "import seeklog, sys; sys.exit('fsspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_reading_directory_by_url_changes_nothing(directory: Path) -> None:
    before = snapshot(directory)
    with seeklog.open(f"file://{directory}") as store:
        list(store.log("orders", 0).scan())
    assert snapshot(directory) == before
