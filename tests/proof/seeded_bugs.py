"""Bugs that are made on purpose, each with the tests that must find it: a test that cannot fail proves nothing.

A bug is an edit of one file: a text that stands there once, and what stands there instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proof.table import ROOT

SOURCE: Final = ROOT / "src"

_STORAGE: Final = "seeklog/storage/"
_KERNEL: Final = "seeklog/record/kernel.py"
_STATES: Final = "tests/crash/test_crash_states.py::test_a_crash_at_any_boundary_keeps_every_promise"
_STORE_STATES: Final = (
    "tests/crash/test_store_crash_states.py::test_a_crash_at_any_boundary_keeps_every_promise_of_a_store"
)
_LOG: Final = "tests/log/test_log.py::"
_RECOVERY: Final = "tests/log/test_recovery.py::"
_BESIDE: Final = "tests/interop/test_beside_a_broker.py::"
_RETURN: Final = "tests/interop/test_return_from_a_broker.py::"
_IO: Final = "tests/faults/test_io_errors.py::"


@dataclass(frozen=True, slots=True)
class Bug:
    """One edit, and who must notice it."""

    target: int
    """The target whose test it puts to the test."""
    breaks: str
    """What is wrong with it."""
    path: str
    """Below `src`."""
    old: str
    new: str
    found_by: tuple[str, ...]
    """Tests: node ids, with or without the case of a parametrized one."""
    also: tuple[str, str] | None = None
    """A second edit that belongs to it."""
    quick: bool = False
    """Whether it is one of the short run."""

    @property
    def interpreted(self) -> bool:
        """The kernel is not compiled anew for a bug in it."""
        return self.path == _KERNEL

    def seeded(self) -> str:
        """Return the text of the file with the bug in it."""
        text = (SOURCE / self.path).read_text()
        for old, new in filter(None, ((self.old, self.new), self.also)):
            # The second is looked for in what the first leaves.
            assert text.count(old) == 1, f"{self.path}: {text.count(old)} places look like {old!r}"
            text = text.replace(old, new)
        return text


def state_of(*workloads: str) -> tuple[str, ...]:
    return tuple(f"{_STATES}[{workload}]" for workload in workloads)


def store_state_of(*workloads: str) -> tuple[str, ...]:
    return tuple(f"{_STORE_STATES}[store: {workload}]" for workload in workloads)


BUGS: Final = (
    # ---------------------------------------------------------------- 1: crash states
    Bug(
        1,
        "an append under flush=batch returns without a sync",
        _STORAGE + "segment.py",
        "own go meanwhile\n        self.shared.files.sync(handle.number)\n",
        "own go meanwhile\n        assert handle\n",
        (_LOG + "test_with_flush_batch_every_append_is_synced_before_it_returns", *state_of("append, flush=batch")),
        quick=True,
    ),
    Bug(
        1,
        "a segment that was rolled away is never synced",
        _STORAGE + "partition.py",
        "for segment in (*rolled, active):\n",
        "for segment in (active,):\n",
        state_of("roll, flush=batch", "seal"),
    ),
    Bug(
        1,
        "the name of a new log's directory is not synced",
        _STORAGE + "partition.py",
        "            sync_ancestors(files, directory)\n",
        "            assert sync_ancestors\n",
        state_of("create with parents", "create after a kill, with parents"),
    ),
    Bug(
        1,
        "the name of a new segment is not synced",
        _STORAGE + "partition.py",
        "if names_dirty or sealed:",
        "if False:",
        state_of("roll, flush=batch", "seal"),
    ),
    Bug(
        1,
        "a checkpoint is written in place",
        _STORAGE + "checkpoint.py",
        'temporary = f"{directory}/{name}{names.TEMPORARY}"',
        'temporary = f"{directory}/{name}"',
        state_of("checkpoint", "truncate_to, flush=batch"),
    ),
    Bug(
        1,
        "a file that replaces another is not synced before it gets the name",
        _STORAGE + "checkpoint.py",
        "        files.write(handle, data, 0)\n        files.sync(handle)\n",
        "        files.write(handle, data, 0)\n",
        state_of("checkpoint", "truncate_to, flush=batch"),
    ),
    Bug(
        1,
        "the recovery point that is written down lies above what was synced",
        _STORAGE + "partition.py",
        "            recovery_point=self.recovery_point,\n            log_start_offset=",
        "            recovery_point=self.log_end_offset,\n            log_start_offset=",
        state_of("leader epochs"),
    ),
    Bug(
        1,
        "records that were appended during a sync are taken for synced",
        _STORAGE + "partition.py",
        "                self._note_synced(end)\n            if sealed",
        "                self._note_synced(self.log_end_offset)\n            if sealed",
        ("tests/log/test_commit.py", "tests/log/test_log.py", "tests/log/test_writer.py"),
    ),
    Bug(
        1,
        "one sync serves also those who have appended after it",
        _STORAGE + "commit.py",
        "served = [waiter for waiter in self._waiters if waiter.end <= durable]",
        "served = list(self._waiters)",
        ("tests/log/test_commit.py::test_threads_that_wait_while_a_sync_runs_share_the_next_one",),
        also=("self._waiters = [waiter for waiter in self._waiters if waiter.end > durable]", "self._waiters = []"),
    ),
    Bug(
        1,
        "less is there before less is promised: a truncation checkpoints too late",
        _STORAGE + "partition.py",
        "replace(self._checkpoint(), recovery_point=recovery_point, high_watermark=high_watermark)",
        "self._checkpoint()",
        state_of("truncate_to, flush=batch"),
    ),
    Bug(
        1,
        "an emptied log rolls before what its last segment tells of producers is kept",
        _STORAGE + "partition.py",
        "            self._keep_producers_at(self.log_end_offset)\n",
        "            pass\n",
        state_of("producers of an emptied log", "producers of an emptied log, flush=batch"),
    ),
    Bug(
        1,
        "a watermark that a truncation lowers is not durable before others have those offsets",
        _STORAGE + "partition.py",
        "self._publisher.publish(EXPLICIT, high_watermark, durable=True)",
        "self._publisher.publish(EXPLICIT, high_watermark)",
        state_of("a manual high watermark falls", "a manual high watermark falls, flush=batch"),
    ),
    Bug(
        1,
        "a transaction appends before its intent is durable",
        "seeklog/topics/transactions.py",
        "                    write_transaction(self._files, self._root, transaction)\n",
        "                    pass\n",
        (
            "tests/crash/test_transactions.py::test_a_transaction_is_durable_before_anything_is_appended_for_it",
            "tests/store/test_transactions.py::test_a_kill_at_any_change_of_a_commit_leaves_all_or_nothing_and_never_twice",
        ),
    ),
    Bug(
        1,
        "what was staged is removed before the log has it on the disk",
        _STORAGE + "transaction.py",
        "                partition.append_staged(piece)\n    partition.flush()\n",
        "                partition.append_staged(piece)\n",
        store_state_of("a transaction, flush=os", "a transaction that rolls", "a transaction over two topics"),
    ),
    Bug(
        1,
        "an archive counts before its first file is there",
        "seeklog/archive/copying.py",
        "    manifest = Manifest(is_complete=False)\n    return replace(plan",
        "    manifest = Manifest(is_complete=True)\n    return replace(plan",
        ("tests/crash/test_archive_states.py",),
    ),
    Bug(
        1,
        "a repair promises what comes back before it is there",
        _STORAGE + "repair.py",
        "checkpoint=self._new_checkpoint(promised)",
        "checkpoint=self._new_checkpoint(end)",
        ("tests/crash/test_repair_states.py::test_a_repair_that_a_crash_interrupts_is_done_by_the_next",),
    ),
    # ---------------------------------------------------------------- 2: torn tails
    Bug(
        2,
        "recovery leaves one byte of the torn batch",
        _STORAGE + "recovery.py",
        "files.truncate(handle, cut.state.size)",
        "files.truncate(handle, cut.state.size + 1)",
        ("tests/faults/test_torn_tail.py::test_a_torn_last_batch_is_cut_whole_at_every_byte",),
        also=(
            "files.truncate(handle, scanned.state.size)",
            "files.truncate(handle, scanned.state.size + (scanned.action is Action.CUT))",
        ),
    ),
    Bug(
        2,
        "recovery cuts into the last whole batch",
        _STORAGE + "recovery.py",
        "files.truncate(handle, cut.state.size)",
        "files.truncate(handle, max(0, cut.state.size - 1))",
        ("tests/faults/test_torn_tail.py::test_a_torn_last_batch_is_cut_whole_at_every_byte",),
    ),
    Bug(
        2,
        "what recovery cuts off is thrown away",
        _STORAGE + "recovery.py",
        "        report.torn_files.append(_keep_torn(shared, cut.segment.base_offset, cut.state.size, tail))\n",
        "",
        (_RECOVERY + "test_a_torn_last_batch_is_cut_and_kept",),
        quick=True,
    ),
    Bug(
        2,
        "damage below the recovery point is cut, too",
        _STORAGE + "recovery.py",
        "    if next_offset < recovery_point:\n        return Action.REFUSE\n    return Action.CUT",
        "    return Action.CUT",
        (_RECOVERY + "test_damage_below_the_recovery_point_is_refused_by_file_and_byte",),
    ),
    # ---------------------------------------------------------------- 3: flipped bits
    Bug(
        3,
        "the checksum of a batch is not looked at",
        _KERNEL,
        "    if load_u32(p, at + 17) != computed:\n        raise crc_error(load_u32(p, at + 17), computed, position)\n",
        "",
        ("tests/record/test_hostile.py::test_no_single_bit_of_a_batch_flips_in_silence",),
    ),
    Bug(
        3,
        "offsets may jump where a log has no gaps",
        _KERNEL,
        "if base < next_offset or (contiguous and base != next_offset):",
        "if base < next_offset:",
        ("tests/record/test_decoding.py", "tests/record/test_segment_state.py", "tests/record/test_hostile.py"),
    ),
    Bug(
        3,
        "a seal whose own checksum is wrong counts",
        _STORAGE + "seal.py",
        " or _CRC.unpack(data[-4:])[0] != crc32c(data[:-4]):",
        ":",
        ("tests/log/test_seal.py::test_a_seal_with_any_bit_turned_over_is_none",),
        quick=True,
    ),
    Bug(
        3,
        "a sealed segment that lost its end is trusted",
        _STORAGE + "recovery.py",
        "    if segment.size < seal.size:\n",
        "    if segment.size < 0:\n",
        ("tests/faults/test_torn_tail.py::test_a_segment_cut_below_the_recovery_point_is_refused_and_left_alone",),
    ),
    # ---------------------------------------------------------------- 4: failing syncs
    Bug(
        4,
        "a log goes on after a failed sync",
        _STORAGE + "partition.py",
        "        self._refusal = failure\n        self.wake_followers()\n",
        "        self.wake_followers()\n",
        (_IO + "test_a_failed_sync_stops_the_log_and_a_reopen_shows_all_that_was_acknowledged",),
    ),
    Bug(
        4,
        "bytes of a failed sync are not written again",
        _STORAGE + "recovery.py",
        "        _rewrite(shared, scanned, recovery_point, is_last=scanned is found.scanned[-1])\n",
        "        assert _rewrite\n",
        state_of("a sync fails", "a sync fails, flush=os"),
    ),
    Bug(
        4,
        "the recovery point moves before the sync",
        _STORAGE + "partition.py",
        "            try:\n                for segment in (*rolled, active):\n",
        "            self.recovery_point = end\n            try:\n                for segment in (*rolled, active):\n",
        (_IO + "test_a_failed_sync_stops_the_log_and_a_reopen_shows_all_that_was_acknowledged",),
    ),
    Bug(
        4,
        "a producer syncs only the log that it appended to last",
        "seeklog/clients/producer.py",
        "self._unsynced[unsynced] = offsets.stop",
        "self._unsynced = {unsynced: offsets.stop}",
        ("tests/store/test_producer.py::test_nor_by_that_of_a_later_batch_which_was_appended_to_the_log_opened_anew",),
    ),
    # ---------------------------------------------------------------- 5: full disks
    Bug(
        5,
        "what a full disk took of a batch stays in the file",
        _STORAGE + "segment.py",
        "            self.shared.files.truncate(self._number, state.size)\n            raise\n",
        "            raise\n",
        (_IO + "test_a_full_disk_refuses_one_append_and_the_same_log_goes_on_when_there_is_room",),
    ),
    Bug(
        5,
        "a log goes on below the start that is on a full disk",
        _STORAGE + "partition.py",
        "                self._write_checkpoint()\n            except OSError as error:\n",
        "                self._try_checkpoint()\n            except OSError as error:\n",
        (_LOG + "test_truncating_the_batch_that_the_log_starts_in_stops_where_the_new_start_finds_no_room",),
    ),
    # ---------------------------------------------------------------- 6: kills
    Bug(
        6,
        "the mark of a clean close is believed though something was appended since",
        _STORAGE + "recovery.py",
        " or saved[2] != segment.size:",
        ":",
        (_RECOVERY + "test_the_clean_marker_is_void_once_something_was_appended",),
    ),
    Bug(
        6,
        "a killed process leaves what it had not synced to be cut",
        _STORAGE + "recovery.py",
        "in scan_into(state, segment, contiguous_from=contiguous_from):\n        numbered",
        "in () if last else scan_into(state, segment, contiguous_from=contiguous_from):\n        numbered",
        (
            "tests/faults/test_kill.py::test_every_acknowledged_record_survives_a_kill_at_a_random_moment",
            "tests/faults/test_kill.py::test_every_acknowledged_record_survives_a_kill_around_every_change",
        ),
    ),
    # ---------------------------------------------------------------- 7: power loss on real file systems
    Bug(
        7,
        "a store's files are renamed before they are synced",
        _STORAGE + "checkpoint.py",
        "        files.write(handle, data, 0)\n        files.sync(handle)\n",
        "        files.write(handle, data, 0)\n",
        ("tests/proof/test_short.py::test_no_promise_is_broken[7-power_loss]",),
    ),
    # ---------------------------------------------------------------- 8: wrong indexes
    Bug(
        8,
        "after a crash the indexes are taken as they are",
        _STORAGE + "recovery.py",
        "        active.replace_indexes()\n",
        "        active.adopt_indexes()\n",
        (_RECOVERY + "test_after_a_crash_a_stale_index_of_the_last_segment_is_written_anew",),
    ),
    Bug(
        8,
        "an index is not held against its seal",
        _STORAGE + "segment.py",
        "return table if crc32c(table) == crc else None",
        "return table",
        ("tests/faults/test_index_damage.py",),
    ),
    Bug(
        8,
        "a stale time index is believed",
        _STORAGE + "segment.py",
        "return table if crc32c(table) == crc else None",
        "return table if crc32c(table) == crc or entry is TIME_ENTRY else None",
        ("tests/faults/test_index_damage.py",),
    ),
    # ---------------------------------------------------------------- 9: readers beside writers
    Bug(
        9,
        "the high watermark is one too low",
        _STORAGE + "partition.py",
        "            if self._follows_write:\n                self.high_watermark = end\n",
        "            if self._follows_write:\n                self.high_watermark = offset\n",
        (_LOG + "test_the_high_watermark_follows_the_write",),
    ),
    Bug(
        9,
        "with flush=batch a record is shown before it is synced",
        _STORAGE + "partition.py",
        'config.flush != "batch" and config.high_watermark == "auto"',
        'config.high_watermark == "auto"',
        (_LOG + "test_with_flush_batch_the_high_watermark_follows_the_sync",),
    ),
    Bug(
        9,
        "a reader goes past the high watermark",
        _STORAGE + "log.py",
        "        stop = partition.high_watermark\n        if not",
        "        stop = partition.log_end_offset\n        if not",
        (_LOG + "test_reads_stop_at_the_high_watermark_and_uncommitted_ones_go_on",),
    ),
    Bug(
        9,
        "a truncation does not wait for who replaces a seal",
        _STORAGE + "partition.py",
        "                with self._shared.replacing:\n                    # Who has",
        "                if self._shared.replacing:\n                    # Who has",
        ("tests/log/test_segment.py::test_a_segment_is_not_cut_away_while_its_seal_is_being_replaced",),
    ),
    Bug(
        9,
        "compaction takes what a truncation is cutting for damage",
        _STORAGE + "partition.py",
        "        with self._sync_lock:\n            return self.truncation_count\n",
        "        return self.truncation_count\n",
        ("tests/log/test_compaction.py::test_compaction_that_meets_what_a_truncation_is_cutting_waits_for_it",),
    ),
    # ---------------------------------------------------------------- 10: one writer
    Bug(
        10,
        "the lock is not taken",
        "seeklog/files/local.py",
        "            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "",
        (
            "tests/faults/test_processes.py::test_a_second_writer_in_another_process_is_refused_at_once_and_told_who_holds_it",
        ),
    ),
    Bug(
        10,
        "the lock stays after a close",
        _STORAGE + "partition.py",
        "        self._publisher.close()\n        self._lock_handle.close()\n",
        "        self._publisher.close()\n",
        ("tests/faults/test_processes.py::test_a_lock_is_free_after_close",),
    ),
    # ---------------------------------------------------------------- 11: model
    Bug(
        11,
        "a search by time passes over a record of that very time",
        _STORAGE + "reading.py",
        "record.offset >= start and record.timestamp_ms >= timestamp_ms",
        "record.offset >= start and record.timestamp_ms > timestamp_ms",
        ("tests/log/test_model.py",),
    ),
    Bug(
        11,
        "a producer is forgotten when the log is opened again",
        _STORAGE + "known_producers.py",
        "        self.state = self._state_at(view, end=end, none_at=none_at, skipped=skipped)\n",
        "        assert skipped is not None\n",
        ("tests/log/test_idempotence.py",),
    ),
    # ---------------------------------------------------------------- 12, 13, 14: hostile bytes
    Bug(
        12,
        "a count of records that cannot be is believed",
        _KERNEL,
        "if count < 0 or last_delta < 0 or count > last_delta + 1:",
        "if count < 0:",
        ("tests/record/test_hostile.py",),
    ),
    Bug(
        13,
        "snappy expands past the limit",
        "seeklog/record/codec.py",
        "    if size > limit:\n        raise _too_large(SNAPPY, limit)\n",
        "",
        ("tests/record/test_codec.py::test_one_byte_over_the_limit_is_refused",),
    ),
    Bug(
        14,
        "a varint may have any length",
        _KERNEL,
        "        if shift == 63 and byte > 1:\n            break\n",
        "",
        ("tests/record/test_hostile.py::test_a_hostile_varint_is_refused_in_every_place",),
    ),
    Bug(
        14,
        "a batch may have any length",
        _KERNEL,
        "    if length > end - at - 12:\n        return 0\n",
        "",
        ("tests/record/test_decoding.py", "tests/record/test_hostile.py"),
    ),
    # ---------------------------------------------------------------- 15: compaction and retention
    Bug(
        15,
        "compaction drops the latest record of a key",
        _KERNEL,
        "            if offset >= 0 and offset < self._map.last_of(",
        "            if offset >= 0 and offset <= self._map.last_of(",
        ("tests/record/test_compaction.py",),
    ),
    Bug(
        15,
        "compaction keeps tombstones for ever",
        _KERNEL,
        "(attributes & _DELETE_HORIZON) != 0 and base_timestamp <= self._now_ms",
        "(attributes & _DELETE_HORIZON) != 0 and base_timestamp < 0",
        ("tests/record/test_compaction.py",),
    ),
    Bug(
        15,
        "a compacted segment gets its name before those that it stands for are gone",
        _STORAGE + "swap.py",
        "    files = shared.files\n    for base in replaced:\n",
        "    files = shared.files\n    path = shared.path(base_offset, names.LOG)\n"
        "    files.rename(path + names.SWAP, path)\n    files.sync_directory(shared.directory)\n"
        "    for base in replaced:\n",
        state_of("compaction swap of two", "compaction", "compaction, flush=batch"),
        also=(
            "    files.rename(path + names.SWAP, path)\n    files.sync_directory(shared.directory)\n    path = ",
            "    path = ",
        ),
    ),
    Bug(
        15,
        "the commit of a compaction is not synced",
        _STORAGE + "swap.py",
        " path + names.SWAP)\n    shared.files.sync_directory(shared.directory)\n",
        " path + names.SWAP)\n",
        state_of("compaction", "compaction, flush=batch", "compaction of transactions"),
    ),
    Bug(
        15,
        "recovery removes segments on the word of a name that is not durable",
        _STORAGE + "recovery.py",
        "    if found.leftovers or not report.clean:\n",
        "    if False:\n",
        state_of("compaction of a compacted log, killed at a rename", "retention killed at a rename"),
    ),
    Bug(
        15,
        "retention takes the segment that is appended to",
        _STORAGE + "removal.py",
        "return [segment for segment, following in pairwise(segments) if following.base_offset <= offset]",
        "return [segment for segment in segments if segment.next_offset <= offset]",
        ("tests/log/test_retention.py", "tests/log/test_log.py"),
    ),
    # ---------------------------------------------------------------- 16: clocks
    Bug(
        16,
        "a record from the future keeps its segment for ever",
        _STORAGE + "retention.py",
        "if facts.newest_ms <= now_ms else min(facts.newest_ms, sealed_at_ms))",
        "if facts.newest_ms <= now_ms else facts.newest_ms)",
        ("tests/log/test_retention.py",),
    ),
    Bug(
        16,
        "records count from when a clock that was not set yet sealed them",
        _STORAGE + "retention.py",
        "newest.append(facts.newest_ms if facts.newest_ms <= now_ms else min(facts.newest_ms, sealed_at_ms))",
        "newest.append(min(facts.newest_ms, sealed_at_ms))",
        ("tests/log/test_retention.py",),
    ),
    # ---------------------------------------------------------------- 17: names and paths
    Bug(
        17,
        "a topic may be called ..",
        "seeklog/names.py",
        'len(name) <= TOPIC_NAME_MOST and name not in (".", "..")',
        "len(name) <= TOPIC_NAME_MOST",
        ("tests/store/test_names.py::test_a_hostile_name_is_refused_everywhere_and_nothing_changes",),
    ),
    Bug(
        17,
        "a link in a log's directory is followed",
        "seeklog/files/local.py",
        "flags = os.O_NOFOLLOW | os.O_CLOEXEC",
        "flags = os.O_CLOEXEC",
        (_LOG + "test_a_symbolic_link_in_place_of_a_side_file_is_not_followed",),
    ),
    # ---------------------------------------------------------------- 22: compatibility
    Bug(
        22,
        "an index entry has the first offset of its batch",
        _KERNEL,
        "self.add_offset_entry(last)",
        "self.add_offset_entry(base)",
        ("tests/log/test_index.py::test_an_entry_has_the_last_offset_of_its_batch_and_where_that_batch_starts",),
    ),
    Bug(
        22,
        "a broker's visit is not noticed",
        _STORAGE + "broker_visit.py",
        "if not entries or entries[-1][0] <= known:",
        "if True:",
        (_RETURN + "test_a_writer_keeps_what_the_broker_left_and_goes_on_behind_it",),
    ),
    Bug(
        22,
        "what a live broker has replaced is called damage",
        _STORAGE + "reading.py",
        "if self._looks > LOOKS_MOST or not was_overtaken(self.view):",
        "if True:",
        (_BESIDE + "test_an_iteration_ends_where_a_broker_cuts_the_log_under_it",),
    ),
)
