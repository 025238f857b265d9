"""Seeded bugs, each with the tests that must find it: a test that cannot fail proves nothing.

A bug is one or two edits, each inside one function (`edits.py`); tests are named by their ids (`tests/ids.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ids import node_of
from proof.edits import Edit, edited, is_interpreted


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug, and the tests that must find it."""

    target: int
    """The target whose tests it tries."""
    breaks: str
    """What the bug does."""
    edits: tuple[Edit, ...]
    found_by: tuple[str, ...]
    """The ids of tests, with or without the case of a parametrized one."""
    quick: bool = False
    """Whether the short run plants it."""

    @property
    def interpreted(self) -> bool:
        """Whether its tests must run compiled modules interpreted: no bug is compiled."""
        return any(is_interpreted(path) for path in self.seeded())

    @property
    def tests(self) -> list[str]:
        """The tests, as pytest names them."""
        return [node_of(name) for name in self.found_by]

    def seeded(self) -> dict[str, str]:
        """Return the text of each file that has the bug, by its path below `src`."""
        return edited(self.edits)


def state_of(*workloads: str) -> tuple[str, ...]:
    return tuple(f"crash-states[{workload}]" for workload in workloads)


def store_state_of(*workloads: str) -> tuple[str, ...]:
    return tuple(f"store-crash-states[store: {workload}]" for workload in workloads)


BUGS: Final = (
    # ---------------------------------------------------------------- 1: crash states
    Bug(
        1,
        "an append under flush=batch returns without a sync",
        (Edit("sync", "self.shared.files.sync(handle.number)"),),
        (
            "flush-batch-syncs",
            *state_of("append, flush=batch"),
        ),
        quick=True,
    ),
    Bug(
        1,
        "a rolled segment is never synced",
        (Edit("sync", "(*rolled, active)", "(active,)"),),
        state_of("roll, flush=batch", "seal"),
    ),
    Bug(
        1,
        "the name of a new log's directory is not synced",
        (Edit("_open", "sync_ancestors(...)"),),
        state_of("create with parents", "create after a kill, with parents"),
    ),
    Bug(
        1,
        "the name of a new segment is not synced",
        (Edit("sync", "has_new_names or sealed", "False"),),
        state_of("roll, flush=batch", "seal"),
    ),
    Bug(
        1,
        "a checkpoint is written in place",
        (Edit("publish_file", 'f"{directory}/{name}{names.TEMPORARY}"', 'f"{directory}/{name}"'),),
        state_of("checkpoint", "truncate_to, flush=batch"),
    ),
    Bug(
        1,
        "a file that replaces another is renamed before it is synced",
        (Edit("write_parts", "files.sync(...)"),),
        state_of("checkpoint", "truncate_to, flush=batch"),
    ),
    Bug(
        1,
        "the stored recovery point is above the synced offset",
        (Edit("checkpoint", "self.recovery_point", "self.log_end_offset"),),
        state_of("leader epochs"),
    ),
    Bug(
        1,
        "records appended during a sync count as synced",
        (Edit("sync", "self.note_synced(end)", "self.note_synced(self.log_end_offset)"),),
        ("append-during-sync",),
    ),
    Bug(
        1,
        "one sync acknowledges records appended after it",
        (
            Edit("_pass_lead", "waiter.end <= durable", "True"),
            Edit("_pass_lead", "waiter.end > durable", "False"),
        ),
        ("group-commit-shares-syncs",),
    ),
    Bug(
        1,
        "a truncation writes its checkpoint after it has cut",
        (Edit("truncate_to", "replace(log.checkpoint(), ...)", "log.checkpoint()"),),
        state_of("truncate_to, flush=batch"),
    ),
    Bug(
        1,
        "an emptied log rolls before the producer state of its last segment is stored",
        (Edit("roll", "self.keep_producers_at(...)"),),
        state_of("producers of an emptied log", "producers of an emptied log, flush=batch"),
    ),
    Bug(
        1,
        "a lowered watermark is not durable before the offsets are given again",
        (
            Edit(
                "truncate_to",
                "log.publisher.publish(high_watermark, durable=True)",
                "log.publisher.publish(high_watermark)",
            ),
        ),
        state_of("a manual high watermark falls", "a manual high watermark falls, flush=batch"),
    ),
    Bug(
        1,
        "a transaction appends before its file is durable",
        (Edit("_commit", "write_transaction(self._files, self._root, transaction)"),),
        (
            "transaction-intent-first",
            "transaction-killed",
        ),
    ),
    Bug(
        1,
        "a staged file is removed before the log is synced",
        (Edit("append_part", "partition.flush()"),),
        store_state_of("a transaction, flush=os", "a transaction that rolls", "a transaction over two topics"),
    ),
    Bug(
        1,
        "an archive counts before its first file is there",
        (Edit("begin_archive", "Manifest(is_complete=False)", "Manifest(is_complete=True)"),),
        ("archive-crash-states",),
    ),
    Bug(
        1,
        "a repair writes its checkpoint before the repaired segment exists",
        (Edit("plan", "self._new_checkpoint(promised)", "self._new_checkpoint(end)"),),
        ("repair-crash-states",),
    ),
    # ---------------------------------------------------------------- 2: torn tails
    Bug(
        2,
        "recovery leaves one byte of the torn batch",
        (
            Edit("_keep_evidence", "files.truncate(handle, ...)", "files.truncate(handle, ... + 1)"),
            Edit(
                "_rewrite",
                "files.truncate(handle, ...)",
                "files.truncate(handle, ... + (scanned.action is Action.CUT))",
            ),
        ),
        ("torn-tail",),
    ),
    Bug(
        2,
        "recovery cuts into the last whole batch",
        (Edit("_keep_evidence", "files.truncate(handle, ...)", "files.truncate(handle, max(0, ... - 1))"),),
        ("torn-tail",),
    ),
    Bug(
        2,
        "recovery discards the bytes that it cuts",
        (Edit("_keep_evidence", "report.torn_files.append(write_evidence(shared, ..., tail))"),),
        ("torn-tail-kept",),
        quick=True,
    ),
    Bug(
        2,
        "damage below the recovery point is cut",
        (Edit("decide", "if next_offset < recovery_point: ..."),),
        ("damage-below-recovery-point",),
    ),
    # ---------------------------------------------------------------- 3: flipped bits
    Bug(
        3,
        "the checksum of a batch is not checked",
        (Edit("check_crc", "if stored != computed: ..."),),
        ("batch-bits-flipped",),
    ),
    Bug(
        3,
        "gaps are accepted in a contiguous segment",
        (Edit("check_offsets", "contiguous and base != next_offset", "False"),),
        (
            "decoding-gap",
            "segment-state-gap",
            "batch-bits-flipped",
        ),
    ),
    Bug(
        3,
        "a seal with a wrong checksum is accepted",
        (Edit("decode_seal", "_CRC.unpack(data[-4:])[0] != crc32c(...)", "False"),),
        ("seal-bits-flipped",),
        quick=True,
    ),
    Bug(
        3,
        "a sealed segment that lost its end is trusted",
        (Edit("_trust_seal", "segment.size < seal.size", "False"),),
        ("torn-below-recovery-point",),
    ),
    # ---------------------------------------------------------------- 4: failing syncs
    Bug(
        4,
        "a log accepts appends after a failed sync",
        (Edit("fail", "self.refusal = failure"),),
        ("sync-fails",),
    ),
    Bug(
        4,
        "recovery does not rewrite the bytes of a failed sync",
        (Edit("mend", "_rewrite(...)"),),
        state_of("a sync fails", "a sync fails, flush=os"),
    ),
    Bug(
        4,
        "the recovery point moves before the sync",
        (
            Edit(
                "sync",
                "for segment in (*rolled, active): ...",
                "self.recovery_point = end\nfor segment in (*rolled, active): ...",
            ),
        ),
        ("sync-fails",),
    ),
    Bug(
        4,
        "a producer syncs only the log that it appended to last",
        (
            Edit(
                "_send",
                "unsynced[part.unsynced] = (batch.lane, part.offsets[-1] + 1)",
                "unsynced = {part.unsynced: (batch.lane, part.offsets[-1] + 1)}",
            ),
        ),
        ("ack-after-reopen-later-batch",),
    ),
    # ---------------------------------------------------------------- 5: full disks
    Bug(
        5,
        "part of a batch stays in the file after a full disk",
        (Edit("append", "self.shared.files.truncate(...)"),),
        ("disk-full-at-append",),
    ),
    Bug(
        5,
        "a log accepts appends below the start offset that a full disk refused",
        (Edit("truncate_to", "promises.write(log.checkpoint())", "promises.try_write(log.checkpoint())"),),
        ("truncation-start-without-room",),
    ),
    # ---------------------------------------------------------------- 6: kills
    Bug(
        6,
        "a clean close counts although records were appended after it",
        (Edit("is_of", "(self.base_offset, self.size) == (base_offset, size)", "self.base_offset == base_offset"),),
        ("clean-marker-void",),
    ),
    Bug(
        6,
        "records that a killed process did not sync are cut",
        (Edit("_scan", "scan_into(state, segment, ...)", "() if last else scan_into(state, segment, ...)"),),
        (
            "kill-at-random",
            "kill-at-a-change",
        ),
    ),
    # ---------------------------------------------------------------- 7: power loss on real file systems
    Bug(
        7,
        "a store's files are renamed before they are synced",
        (Edit("write_parts", "files.sync(...)"),),
        ("proof-in-short[7-power_loss]",),
    ),
    # ---------------------------------------------------------------- 8: wrong indexes
    Bug(
        8,
        "indexes are not rebuilt after a crash",
        (Edit("_open_active", "active.replace_indexes()", "active.adopt_indexes()"),),
        ("stale-index-after-crash",),
    ),
    Bug(
        8,
        "an index is not compared with its seal",
        (Edit("_read_index", "crc32c(...) == crc", "True"),),
        ("index-wrong",),
    ),
    Bug(
        8,
        "a stale time index is accepted",
        (Edit("_read_index", "crc32c(...) == crc", "crc32c(...) == crc or entry is TIME_ENTRY"),),
        ("index-wrong",),
    ),
    # ---------------------------------------------------------------- 9: readers beside writers
    Bug(
        9,
        "the high watermark is one too low",
        (
            Edit(
                "append",
                "if self.follows_write:\n    self.high_watermark = end",
                "if self.follows_write:\n    self.high_watermark = offset",
            ),
        ),
        ("high-watermark-follows-write",),
    ),
    Bug(
        9,
        "with flush=batch readers see a record before it is synced",
        (Edit("__init__", 'config.flush != "batch" and ...', "..."),),
        ("flush-batch-high-watermark",),
    ),
    Bug(
        9,
        "a reader reads past the high watermark",
        (Edit("read", "partition.high_watermark", "partition.log_end_offset"),),
        ("read-up-to-high-watermark",),
    ),
    Bug(
        9,
        "a truncation does not wait for the replacement of a seal",
        (Edit("truncate_to", "with log.shared.replacing: ...", "if True: ..."),),
        ("seal-replaced-during-cut",),
    ),
    Bug(
        9,
        "compaction reports a concurrent truncation as damage",
        (Edit("count_truncations", "with self._partition.sync_lock: ...", "..."),),
        ("compaction-waits-for-truncation",),
    ),
    # ---------------------------------------------------------------- 10: one writer
    Bug(
        10,
        "the lock is not taken",
        (Edit("lock", "fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)"),),
        ("second-writer-elsewhere",),
    ),
    Bug(
        10,
        "the lock is not released at close",
        (Edit("release", "self.writer_lock.close()"),),
        ("lock-free-after-close",),
    ),
    Bug(
        10,
        "a borrowed log is returned before it is synced",
        (Edit("give_back", "log.sync(checkpoints=False)"),),
        ("given-back-durable", *store_state_of("commits")),
        quick=True,
    ),
    Bug(
        10,
        "a borrower ignores changes of other processes except appends",
        (
            Edit(
                "_read_appended",
                "saved is None or saved.structure != own.structure or note.base_offset != active.base_offset",
                "note.base_offset != active.base_offset",
            ),
        ),
        ("borrowed-after-more-than-appends",),
        quick=True,
    ),
    Bug(
        10,
        "a borrower counts batches of other processes as its own",
        (Edit("retake", "left.split()[1:2] == [self._lock.token]", "True"),),
        ("borrowed-in-turn",),
    ),
    Bug(
        10,
        "the next writer takes unsynced records of the last one for synced",
        (Edit("_read_appended", "note.recovery_point", "log.log_end_offset"),),
        ("passed-on-with-its-recovery-point", *store_state_of("two stores send in turn, flush=interval")),
        quick=True,
    ),
    Bug(
        10,
        "a log is passed on with segments that are not sealed",
        (
            Edit(
                "give_back",
                "syncs or log.syncs_each or unsealed.rolled or unsealed.has_new_names",
                "syncs or log.syncs_each",
            ),
        ),
        ("passed-on-without-unsealed-segments",),
    ),
    Bug(
        10,
        "records of a returned log are not synced by their interval",
        (Edit("do_background_work", "self.turns.sync_returned()"),),
        ("passed-on-sync-comes-back",),
    ),
    Bug(
        10,
        "a failed log leaves a note when it closes",
        (Edit("close", "not has_failed", "True"),),
        ("failed-sync-is-not-passed-on",),
    ),
    Bug(
        10,
        "a writer that opens a changed log again looks like one after a kill",
        (Edit("borrow", "log.writer_lock.put_back()"),),
        ("changed-log-is-reopened-once",),
    ),
    Bug(
        10,
        "a borrower forgets the producers of other processes",
        (Edit("note_in", "self.note(_batches_of(segment, start, end))"),),
        ("borrowed-producer-sequences",),
    ),
    Bug(
        10,
        "an idle partition is not returned to a process that waits for it",
        (Edit("end_idle_turns", "self._try_return(entry)"),),
        ("producers-take-turns",),
    ),
    Bug(
        10,
        "the process that had the last turn takes the next one, too",
        (Edit("take_in_turn", "had_last_turn and is_awaited(files, queue)", "False"),),
        ("turns-go-round",),
    ),
    Bug(
        10,
        "a reader of a partition that others write reads from this process's writer",
        (Edit("open_log", "not self.is_shared", "True"),),
        ("shared-partition-is-read-from-disk",),
    ),
    Bug(
        10,
        "a commit does not wait for the sync of a returned partition",
        (Edit("_flush_shared", "entry.writer.sync_returned()"),),
        ("flush-of-shared-partition",),
    ),
    # ---------------------------------------------------------------- 11: model
    Bug(
        11,
        "a search by time skips a record of exactly that time",
        (Edit("_time_in_segment", "record.timestamp_ms >= timestamp_ms", "record.timestamp_ms > timestamp_ms"),),
        ("log-model",),
    ),
    Bug(
        11,
        "a producer is forgotten when the log is reopened",
        (Edit("load", "self.state = self._state_at(...)"),),
        ("producer-known-after-open",),
    ),
    Bug(
        11,
        "batches in doubt are appended again without a look at the log",
        (Edit("_find_written", "count == written", "False"),),
        ("batches-in-doubt-are-stored-once",),
    ),
    # ---------------------------------------------------------------- 12, 13, 14: hostile bytes
    Bug(
        12,
        "an impossible record count is accepted",
        (Edit("check_batch", "count < 0 or last_delta < 0 or count > last_delta + 1", "count < 0"),),
        ("hostile-header-fields",),
    ),
    Bug(
        13,
        "snappy expands past the limit",
        (Edit("_decode_snappy", "if size > limit: ..."),),
        ("decompression-limit",),
    ),
    Bug(
        14,
        "a varint may have any length",
        (Edit("load_varint", "if shift == 63 and byte > 1: ..."),),
        ("hostile-varint",),
    ),
    Bug(
        14,
        "a batch may have any length",
        (Edit("batch_size", "if length > end - at - layout.PREFIX_SIZE: ..."),),
        (
            "decoding-partial-batch",
            "hostile-truncation",
        ),
    ),
    # ---------------------------------------------------------------- 15: compaction and retention
    Bug(
        15,
        "compaction drops the latest record of a key",
        (Edit("choose", "places[number].offset < found[number]", "places[number].offset <= found[number]"),),
        ("offset-map-full",),
    ),
    Bug(
        15,
        "compaction keeps tombstones for ever",
        (Edit("choose", "is_tombstone and drops_tombstones", "False"),),
        ("tombstone-horizon",),
    ),
    Bug(
        15,
        "a compacted segment gets its name before those that it stands for are gone",
        (
            Edit("complete", "files.rename(path + names.SWAP, path)\nfiles.sync_directory(shared.directory)"),
            Edit(
                "complete",
                "for base in replaced: ...",
                "path = shared.path(base_offset, names.LOG)\nfiles.rename(path + names.SWAP, path)\n"
                "files.sync_directory(shared.directory)\nfor base in replaced: ...",
            ),
        ),
        state_of("compaction swap of two", "compaction", "compaction, flush=batch"),
    ),
    Bug(
        15,
        "the commit of a compaction is not synced",
        (Edit("commit", "shared.files.sync_directory(shared.directory)"),),
        state_of("compaction", "compaction, flush=batch", "compaction of transactions"),
    ),
    Bug(
        15,
        "recovery removes segments on the word of a name that is not durable",
        (Edit("mend", "surveyed.leftovers or not report.clean", "False"),),
        state_of("compaction of a compacted log, killed at a rename", "retention killed at a rename"),
    ),
    Bug(
        15,
        "retention takes the segment that is appended to",
        (
            Edit(
                "segments_below",
                "return ...",
                "return [segment for segment in segments if segment.next_offset <= offset]",
            ),
        ),
        (
            "retention-below-start",
            "delete-before",
        ),
    ),
    # ---------------------------------------------------------------- 16: clocks
    Bug(
        16,
        "a record from the future keeps its segment for ever",
        (Edit("_newest_ms", "min(facts.newest_ms, sealed_at_ms)", "facts.newest_ms"),),
        ("retention-future-record",),
    ),
    Bug(
        16,
        "records count from when a clock that was not set yet sealed them",
        (Edit("_newest_ms", "facts.newest_ms <= now_ms", "False"),),
        ("retention-unset-clock",),
    ),
    # ---------------------------------------------------------------- 17: names and paths
    Bug(
        17,
        "a topic may be called ..",
        (Edit("is_topic_name", 'name not in (".", "..")', "True"),),
        ("hostile-names",),
    ),
    Bug(
        17,
        "a link in a log's directory is followed",
        (Edit("open", "os.O_NOFOLLOW | ...", "..."),),
        ("side-file-is-a-link",),
    ),
    # ---------------------------------------------------------------- 22: compatibility
    Bug(
        22,
        "an index entry has the first offset of its batch",
        (Edit("note", "self.add_offset_entry(last)", "self.add_offset_entry(base)"),),
        ("index-entries",),
    ),
    Bug(
        22,
        "a broker's visit is not noticed",
        (Edit("was_visited", "not entries or ...", "True"),),
        ("return-writer",),
    ),
    Bug(
        22,
        "what a live broker has replaced is called damage",
        (Edit("resume_or_raise", "self._looks > MAX_LOOKS or ...", "True"),),
        ("broker-cuts-under-reader",),
    ),
)
