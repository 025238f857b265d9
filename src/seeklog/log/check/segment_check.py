"""Comparing the files of one segment with each other, with the plan, and with the promises."""

from __future__ import annotations

from seeklog import names
from seeklog.errors import counted
from seeklog.files import read_if_exists
from seeklog.log.check.finding import Finding, Kind, Severity
from seeklog.log.check.index_check import IndexCheck
from seeklog.log.check.salvage import MAX_DAMAGES, Damage, Salvage
from seeklog.log.check.segment_task import SegmentTask
from seeklog.log.segment import Shared, Trust, seal_of
from seeklog.log.side.pages import PageSums, first_difference
from seeklog.log.side.seal import HEAD_SIZE as SEAL_HEAD_SIZE
from seeklog.log.side.seal import SIZE as SEAL_SIZE
from seeklog.log.side.seal import Seal, decode_seal, read_table


class SegmentCheck:
    """The check of one segment. Its log is checked on construction, its indexes on request.

    Problems are added to `findings`. An `OSError` passes through.
    """

    def __init__(self, task: SegmentTask, shared: Shared, findings: list[Finding]) -> None:
        self.task = task
        self.findings = findings
        self._finding = task.finding
        self._files = shared.files
        self.segment = segment = task.segment_in(shared)
        segment.trust = Trust(is_exact=task.is_ours and task.contiguous_from <= task.base_offset)
        self.seal = self._read_seal()
        if self.seal is not None:
            segment.attach(self.seal)
            segment.read_unproved()
        self._page_table, sums = self._read_page_table()
        self.contiguous_from = task.base_offset if segment.contiguous else task.contiguous_from
        """From this offset on, a gap is damage."""
        self.salvage = Salvage(segment, self.contiguous_from, shared.new_state, end_offset=task.end_offset, sums=sums)
        self.state = self.salvage.state
        self._check_batches()
        self._has_lost_end = self._check_end()
        if not self.salvage.damages:
            self.state.finish_times()
            self._check_sealed(sums)
            self._check_closed()
            if not self._has_lost_end:
                self._note_gaps()

    def check_indexes(self) -> None:
        """Check the indexes against the log, except during an incomplete compaction."""
        if not self.task.is_swap:
            contiguous_from, is_short = self.contiguous_from, self._has_lost_end
            indexes = IndexCheck(self.task, self.salvage, self.seal, contiguous_from, has_lost_end=is_short)
            self.findings += indexes.findings()

    # ------------------------------------------------------------ batches

    def _check_batches(self) -> None:
        for damage in self.salvage.damages:
            if not self._is_being_written(damage):
                self._report_damage(damage)
        if self.salvage.is_given_up:
            last = self.salvage.damages[-1]
            is_many = len(self.salvage.damages) == MAX_DAMAGES
            reason = f"{MAX_DAMAGES} damaged ranges" if is_many else "too many bytes look like the start of a batch"
            detail = f"{reason}; the rest was not checked"
            self.findings.append(self._finding(last.kind, Severity.ERROR, detail, position=last.start))

    def _is_tail(self, damage: Damage) -> bool:
        return self.task.is_last and damage.next_offset is None

    def _is_unfinished(self, damage: Damage) -> bool:
        """Return whether the damage looks like an interrupted write, or like space reserved for one."""
        return self._is_tail(damage) and (damage.kind is Kind.TRUNCATED or damage.is_blank)

    def _is_lost(self, damage: Damage) -> bool:
        """Return whether promised records are lost. Without a recovery point, only the end counts as unpromised."""
        if self.task.recovery_point is None:
            return not self._is_tail(damage)
        return self.task.is_promised(damage.offset)

    def _is_being_written(self, damage: Damage) -> bool:
        return self._is_unfinished(damage) and not self._is_lost(damage) and self.task.is_growing(self.segment)

    def _report_damage(self, damage: Damage) -> None:
        severity, kind = Severity.ERROR, damage.kind
        detail = [damage.reason]
        if kind is Kind.FORMAT and self.task.is_ours:
            kind = Kind.HEADER  # seeklog writes no other format
        if kind is Kind.FORMAT:
            severity = Severity.WARNING
        elif not self._is_lost(damage):
            severity = Severity.NOTE if self._is_unfinished(damage) else Severity.WARNING
            detail.append("it was never promised durable; the next open for writing cuts it")
        if damage.is_blank:
            detail.append("only zeros follow")
        resumed = damage.next_offset
        if resumed is not None and damage.offset < resumed and kind in (Kind.CRC, Kind.HEADER):
            detail.append(f"offsets {damage.offset} to {resumed - 1} cannot be read")
        batches = self.state.batch_count - damage.batches_before
        records = self.state.record_count - damage.records_before
        if batches:
            rest = f"{counted(batches, 'whole batch', 'whole batches')} with {counted(records, 'record')}"
            detail.append(f"after it: {rest}, from byte {damage.stop} on")
        self.findings.append(
            self._finding(kind, severity, "; ".join(detail), position=damage.start, offset=damage.offset)
        )

    def _check_end(self) -> bool:
        """Compare the end of the segment with promises, seal and next segment; return whether records are lost."""
        if self.salvage.is_given_up or any(damage.next_offset is None for damage in self.salvage.damages):
            return False  # the damage reports it
        task, seal, end, following = self.task, self.seal, self.state.next_offset, self.task.next_base_offset
        kind = Kind.TRUNCATED
        if seal is not None and task.size < seal.size:
            sizes = f"the file has {counted(task.size, 'byte')}, its seal says {seal.size:,}"
            detail = f"{sizes}: offsets from {end} on are lost"
        elif following is None and task.is_promised(end):
            detail = f"whole batches end at offset {end}, but offsets below {task.recovery_point} were synced"
        elif following is not None and end > following:
            kind = Kind.OVERLAP
            detail = f"the segment ends with offset {end - 1}, but the next one starts at {following}"
        elif following is not None and end < following and self.is_gap_damage(end):
            kind = Kind.GAP
            detail = f"offsets {end} to {following - 1} are missing after this segment"
        else:
            return False
        self.findings.append(self._finding(kind, Severity.ERROR, detail, position=self.state.size, offset=end))
        return True

    def is_gap_damage(self, end: int) -> bool:
        """Return whether the offsets from `end` to the next segment are missing although gaps are not allowed."""
        return end != self.task.gap_from and (self.segment.contiguous or end >= self.task.contiguous_from)

    def _note_gaps(self) -> None:
        """Add notes for missing offsets where gaps are allowed."""
        task = self.task
        end = self.state.next_offset if task.next_base_offset is None else task.next_base_offset
        if task.gap_from is not None:
            detail = f"offsets {task.gap_from} to {end - 1} are missing after it, as the archive's manifest declares"
            self.findings.append(self._finding(Kind.GAP, Severity.NOTE, detail, offset=task.gap_from))
            end = task.gap_from
        total = end - task.base_offset
        missing = total - self.state.record_count
        if task.contiguous_from > task.base_offset and missing > 0:
            offsets = counted(total, "offset has", "offsets have")
            detail = f"{missing:,} of {offsets} no record, as after compaction or a repair"
            self.findings.append(self._finding(Kind.GAP, Severity.NOTE, detail, offset=task.base_offset))

    # ------------------------------------------------------------ the seal

    def _read_seal(self) -> Seal | None:
        task = self.task
        if task.next_base_offset is None or not task.is_ours or task.is_swap:
            return None
        data = read_if_exists(self._files, task.path_of(names.SEAL))
        if data is None:
            # The sync that seals a segment also covers records of the next one, so it may have been rolled just now.
            if task.is_promised(task.next_base_offset):
                detail = "the segment was synced but has no seal; the next open for writing creates it"
                self.findings.append(self._finding(Kind.SEAL_MISSING, Severity.WARNING, detail, suffix=names.SEAL))
            return None
        seal = decode_seal(data)
        if seal is not None and seal.base_offset == task.base_offset:
            return seal
        found = counted(len(data), "byte is", "bytes are")
        detail = f"{found} not a seal: a seal has at least {SEAL_SIZE} bytes and a valid CRC"
        if seal is not None:
            detail = f"it is the seal of another segment, which starts at offset {seal.base_offset}"
        self.findings.append(self._finding(Kind.SEAL, Severity.ERROR, detail, suffix=names.SEAL, position=0))
        return None

    def _read_page_table(self) -> tuple[bytes, PageSums | None]:
        """Return the table of page checksums, and an object that computes them from the log; None without a table."""
        if self.seal is None or self.seal.pages is None:
            return b"", None
        table = read_table(self._files, self.task.directory, self.task.base_offset, self.seal.pages)
        if table is None:
            detail = "the table of page checksums after its head is damaged or cut off"
            self.findings.append(
                self._finding(Kind.SEAL, Severity.ERROR, detail, suffix=names.SEAL, position=SEAL_HEAD_SIZE)
            )
            return b"", None
        return table, PageSums(self.seal.pages.page_size)

    def _check_sealed(self, sums: PageSums | None) -> None:
        """Compare the seal with the log, which is valid by itself. The indexes are checked separately."""
        seal = self.seal
        if seal is None or self.task.size < seal.size:
            return
        made = seal_of(self.state, sealed_at_ms=seal.sealed_at_ms, may_have_gaps=not seal.contiguous)
        different = [
            f"{name.replace('_', ' ')} {getattr(seal, name)}, but the log has {getattr(made, name)}"
            for name in ("size", "next_offset", "record_count", "batch_count", "max_timestamp_ms", "contiguous")
            if getattr(seal, name) != getattr(made, name)
        ]
        wrong = None
        if sums is not None and seal.pages is not None:
            wrong = first_difference(self._page_table, sums.table, page_size=seal.pages.page_size)
        if different:
            self.findings.append(
                self._finding(Kind.SEAL, Severity.ERROR, "; ".join(different), suffix=names.SEAL, position=0)
            )
        elif seal.log_crc != made.log_crc:
            self._report_uncovered(seal.log_crc, noted_by="its seal says", page=wrong)
        elif wrong is not None:
            detail = f"the log matches the seal, but the seal has another checksum of the page at byte {wrong}"
            self.findings.append(self._finding(Kind.SEAL, Severity.ERROR, detail, suffix=names.SEAL))

    def _check_closed(self) -> None:
        """Compare the last segment with the state recorded by a clean close."""
        saved = self.task.saved
        if saved is None or (saved.size, saved.log_crc) == (self.state.size, self.state.crc):
            return
        if not self.task.is_growing(self.segment):
            self._report_uncovered(saved.log_crc, noted_by="it was closed with", page=None)

    def _report_uncovered(self, crc: int, *, noted_by: str, page: int | None) -> None:
        """Report a change that no batch's CRC covers, and its page if there are page checksums."""
        where = "" if page is None else f", in the page that starts at byte {page}"
        detail = (
            f"the log has CRC {self.state.crc:#010x}, {noted_by} {crc:#010x}: a byte that no batch's own CRC covers, "
            f"such as one of a leader epoch, has changed{where}"
        )
        self.findings.append(self._finding(Kind.SEAL, Severity.ERROR, detail, position=page))
