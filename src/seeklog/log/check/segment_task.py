"""One segment to inspect, and what was known of it when the inspection was planned."""

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
    """A segment and what its partition says of it. It can be sent to another process."""

    directory: str
    base_offset: int
    path: str
    size: int
    next_base_offset: int | None
    """Where the next segment starts; None: this is the last one."""
    gap_from: int | None
    """From where on an archive declares offsets to be missing, up to the next segment. None: nowhere."""
    recovery_point: int | None
    """Records below it were promised durable. None: nothing says."""
    contiguous_from: int
    is_ours: bool
    is_live: bool
    """Whether a writer was at it: its last batch may be half written."""
    saved: SavedState | None
    """What a clean close noted of it."""
    listed: tuple[FileStatus | None, ...]
    """Its log and both index files as they were when the inspection was planned."""
    config: LogConfig

    @property
    def is_last(self) -> bool:
        return self.next_base_offset is None

    @property
    def is_swap(self) -> bool:
        """Whether a compaction had finished it and not yet given it its name."""
        return self.path.endswith(names.SWAP)

    @property
    def end_offset(self) -> int | None:
        """The offset that the segment should end before, where anything says."""
        if self.next_base_offset is None and self.saved is not None:
            return self.saved.next_offset
        return self.next_base_offset if self.gap_from is None else self.gap_from

    def is_promised(self, offset: int) -> bool:
        """Tell whether the record with this offset was promised durable."""
        return self.recovery_point is not None and offset < self.recovery_point

    def is_growing(self, segment: Segment) -> bool:
        """Tell whether a writer is at it, or has been since the inspection was planned."""
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
        """Return a finding about this segment, in its log unless the suffix of another file is given."""
        return Finding(
            kind=kind,
            severity=severity,
            path=self.path_of(suffix) if suffix else self.path,
            segment=self.base_offset,
            position=position,
            offset=offset,
            detail=detail,
        )
