"""A caller that repeats an operation after DiskFull, on the same log without a reopen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from crash.recorder import PATH, Recorder
from crash.workloads import WORKLOADS
from faults.works import FAILING, work_on_log
from seeklog import names
from seeklog.errors import DiskFull

if TYPE_CHECKING:
    from collections.abc import Callable


class Insisting(Recorder):
    """Repeats a call after DiskFull, and checks that the refused call changed nothing."""

    def log_sizes(self) -> dict[str, int]:
        logs = [name for name in self.sim.list(PATH) if name.endswith(names.LOG)]
        return {name: self.sim.file_size(f"{PATH}/{name}") for name in logs}


def _insist(name: str) -> Callable[..., Any]:
    def call(self: Insisting, *arguments: Any, **keywords: Any) -> Any:
        sizes, end = self.log_sizes(), self.log.log_end_offset
        try:
            return getattr(Recorder, name)(self, *arguments, **keywords)
        except DiskFull:
            found = self.log_sizes()
            # A new segment may remain: it is empty, and the log continues there.
            assert {name: found.get(name) for name in sizes} == sizes, f"{name}: {sizes} was not trimmed back: {found}"
            assert self.log.log_end_offset == end, f"{name}: the log ends at {self.log.log_end_offset}, not {end}"
            self.forget_the_refused_append()
        return getattr(Recorder, name)(self, *arguments, **keywords)

    return call


for _name in ("append", "append_many", "append_batches", "append_numbered", "flush", "delete_before", "begin_epoch"):
    setattr(Insisting, _name, _insist(_name))

INSISTING_WORKS: Final = {
    name: work_on_log(workload, recorder_type=Insisting) for name, workload in WORKLOADS.items() if name not in FAILING
}
