"""Read-ahead windows over slow files: the requests, how many there are, and the memory kept."""

from __future__ import annotations

import threading
from random import Random

import pytest

from seeklog.files.readahead import FIRST_BYTES, MAX_AHEAD_BYTES, ReadAhead

SIZE = 40 << 20


class Source:
    """A file whose bytes follow from their positions, and a record of the reads."""

    def __init__(self, size: int = SIZE) -> None:
        self.data = Random(7).randbytes(1 << 20) * (size >> 20)
        self.asked: list[tuple[int, int]] = []

    def fetch(self, path: str, start: int, stop: int) -> bytes:
        self.asked.append((start, stop))
        return self.data[start:stop]


@pytest.fixture(scope="module")
def big() -> Source:
    return Source()


@pytest.fixture
def source(big: Source) -> Source:
    big.asked.clear()
    return big


@pytest.mark.parametrize("knows_size", [True, False])
def test_reads_in_any_order_return_bytes_of_file(source: Source, knows_size: bool) -> None:
    ahead = ReadAhead(source.fetch, max_total_bytes=3 << 20)
    random = Random(11)
    position = 0
    for _ in range(500):
        position = random.choice([position, random.randrange(SIZE), max(0, position - 1000), SIZE - 10])
        size = random.choice([1, 61, 8192, 96 << 10, 700_000])
        data = ahead.read("file", size, position, file_size=SIZE if knows_size else None)
        assert data == source.data[position : position + size]
        position = min(position + len(data), SIZE - 1)
        assert ahead.total <= (3 << 20) + MAX_AHEAD_BYTES


def test_read_out_of_order_requests_little(source: Source) -> None:
    ahead = ReadAhead(source.fetch)
    for position in (20 << 20, 5 << 20, 30 << 20, 1 << 20):
        ahead.read("file", 8192, position, file_size=SIZE)
    assert [stop - start for start, stop in source.asked] == [FIRST_BYTES] * 4


def test_scan_doubles_its_requests_up_to_limit(source: Source) -> None:
    ahead = ReadAhead(source.fetch)
    for position in range(0, SIZE, 96 << 10):
        ahead.read("file", 96 << 10, position, file_size=SIZE)
    sizes = [stop - start for start, stop in source.asked]
    assert sizes[:4] == [96 << 10, 192 << 10, 384 << 10, 768 << 10]
    assert max(sizes) == MAX_AHEAD_BYTES
    assert sum(sizes) == SIZE, "every byte was asked for once"
    assert len(sizes) < 18


def test_bytes_already_read_are_not_requested_again(source: Source) -> None:
    ahead = ReadAhead(source.fetch)
    ahead.read("file", 8192, 1000, file_size=SIZE)
    ahead.read("file", 61, 1000, file_size=SIZE)
    ahead.read("file", 500, 9000, file_size=SIZE)
    assert len(source.asked) == 1


def test_two_scans_of_one_file_do_not_disturb_each_other(source: Source) -> None:
    ahead = ReadAhead(source.fetch)
    for step in range(0, 8 << 20, 96 << 10):
        for begin in (0, 16 << 20):
            ahead.read("file", 96 << 10, begin + step, file_size=SIZE)
    assert len(source.asked) < 24


def test_read_after_end_is_empty_and_makes_no_request(source: Source) -> None:
    ahead = ReadAhead(source.fetch)
    assert ahead.read("file", 100, SIZE, file_size=SIZE) == b""
    assert ahead.read("file", 100, SIZE + 5, file_size=SIZE) == b""
    assert source.asked == []


def test_all_windows_together_stay_within_limit(source: Source) -> None:
    ahead = ReadAhead(source.fetch, max_total_bytes=1 << 20)
    for number in range(100):
        ahead.read(f"file {number}", 8192, number << 10, file_size=SIZE)
        assert ahead.total <= 1 << 20


def test_concurrent_reads_of_one_file_return_its_bytes(source: Source) -> None:
    ahead = ReadAhead(source.fetch, max_total_bytes=1 << 20)
    wrong: list[int] = []

    def scan(begin: int) -> None:
        wrong.extend(
            position
            for position in range(begin, begin + (4 << 20), 64 << 10)
            if ahead.read("file", 64 << 10, position, file_size=SIZE) != source.data[position : position + (64 << 10)]
        )

    threads = [threading.Thread(target=scan, args=(begin << 20,)) for begin in (0, 1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert ahead.total <= (1 << 20) + MAX_AHEAD_BYTES
