"""One segment to inspect, with the facts known when the inspection was planned."""

from __future__ import annotations

from dataclasses import dataclass

from seeklog import names
from seeklog.config import INT64_MAX, LogConfig
from seeklog.files import FileStatus
from seeklog.log.check.finding import Finding, Kind, Severity
from seeklog.log.segment import Segment, Shared
from seeklog.record.saved_state import SavedState


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTask:
    """A segment, and what its partition promises about it. It can be sent to another process."""

    directory: str
    base_offset: int
    path: str
    size: int
    next_base_offset: int | None
    """The base offset of the next segment; None for the last one."""
    gap_from: int | None
    """The first offset, before the next segment, that an archive declares missing; None: none."""
    recovery_point: int | None
    """Records below it were promised durable; None if unknown."""
    contiguous_from: int
    is_ours: bool
    is_live: bool
    """Whether a writer was active: the last batch may be incomplete."""
    saved: SavedState | None
    """The state recorded by a clean close."""
    listed: tuple[FileStatus | None, ...]
    """The status of its log and both index files when the inspection was planned."""
    config: LogConfig

    @property
    def is_last(self) -> bool:
        return self.next_base_offset is None

    @property
    def is_swap(self) -> bool:
        """Whether a compaction finished the segment but did not give it its final name."""
        return self.path.endswith(names.SWAP)

    @property
    def end_offset(self) -> int | None:
        """The offset at which the segment should end, if known."""
        if self.next_base_offset is None and self.saved is not None:
            return self.saved.next_offset
        return self.next_base_offset if self.gap_from is None else self.gap_from

    def is_promised(self, offset: int) -> bool:
        """Return whether the record with this offset was promised durable."""
        return self.recovery_point is not None and offset < self.recovery_point

    def is_growing(self, segment: Segment) -> bool:
        """Return whether a writer is active, or has been since the inspection was planned."""
        return self.is_last and (self.is_live or segment.shared.files.size(segment.handle().number) > self.size)

    def segment_in(self, shared: Shared) -> Segment:
        """Return the segment as it was when the inspection was planned."""
        segment = Segment(shared, self.base_offset, size=self.size, next_offset=INT64_MAX, seal=None)
        segment.path = self.path
        return segment

    def path_of(self, suffix: str) -> str:
        return f"{self.directory}/{names.segment_name(self.base_offset, suffix)}"

    def finding(
        self,
        kind: Kind,
        severity: Severity,
        detail: str,
        *,
        suffix: str = "",
        position: int | None = None,
        offset: int | None = None,
    ) -> Finding:
        """Return a finding about this segment, in its log or in the file with the given suffix."""
        return Finding(
            kind=kind,
            severity=severity,
            path=self.path_of(suffix) if suffix else self.path,
            segment=self.base_offset,
            position=position,
            offset=offset,
            detail=detail,
        )
