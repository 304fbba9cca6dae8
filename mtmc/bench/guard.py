"""The guard of the host's memory: problems wait for room, and one that takes too much is ended, never silently."""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.judge.processes import available_bytes, descendants, memory_over

GIB = 1 << 30
RESERVE = 4 * GIB  # stays free on the host: below it the system would choose which process to end


@dataclass(frozen=True)
class Guard:
    """`limit_bytes` is what the processes of one problem may hold; `reserve_bytes` what the host must keep free."""

    limit_bytes: int
    reserve_bytes: int = RESERVE

    @staticmethod
    def of_host(jobs: int, limit_gib: float = 0.0) -> Guard:
        """For so many problems side by side: each an equal part of what is free now, less the reserve, unless told."""
        part = max(available_bytes() - RESERVE, RESERVE) // jobs
        return Guard(int(limit_gib * GIB) if limit_gib else part)

    def room(self) -> bool:
        """Whether another problem may start."""
        return available_bytes() >= self.reserve_bytes

    def excess(self, pid: int) -> str:
        """Why the problem of this process must end, in a sentence; empty while it may go on."""
        if memory_over([pid, *descendants(pid)], self.limit_bytes):
            return f"its processes held more than {self.limit_bytes / GIB:.1f} GiB of the host's memory"
        return ""
