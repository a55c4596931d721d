# SPDX-License-Identifier: Apache-2.0
"""The source `idlepage`: accessed bits of every page, by the kernel's idle page tracking."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tierd.config.watching import IdlePageConfig, ScanConfig
from tierd.core import bounds
from tierd.core.access import Availability
from tierd.core.errors import UnavailableError
from tierd.core.process import give_up_all
from tierd.sources.idlepage import host
from tierd.sources.idlepage.native import IdlePages
from tierd.sources.idlepage.ring import RingWriter
from tierd.sources.idlepage.scanner import IdleScanner
from tierd.sources.kmod.ring import Ring
from tierd.sources.scan import ScanSource


class Scanning:
    """A scanner in a thread of its own, its ring and the kernel's files, while they are in use."""

    def __init__(
        self,
        root: Path,
        pages: Callable[[Path], AbstractContextManager[IdlePages]] = host.idle_pages,
    ) -> None:
        self._root, self._open = root, pages
        self._files = contextlib.ExitStack()
        self._scanner: IdleScanner | None = None

    def open_ring(self, root: Path) -> Ring:
        """Open the files and make a scanner, which does not scan yet; the reader's end of its ring.

        Raises:
            UnavailableError: the host refused.
        """
        with contextlib.ExitStack() as files:
            pages = files.enter_context(self._open(root))
            writer = RingWriter(bounds.IDLE_RING_RECORDS, root)
            files.callback(writer.close)
            self._scanner = self.make_scanner(pages, writer, root=root)
            self._files = files.pop_all()
        return writer.reader()

    def make_scanner(self, pages: IdlePages, writer: RingWriter, **given: Any) -> IdleScanner:
        """A scanner; a test has another one made."""
        return IdleScanner(pages, writer, **given)

    def open_control(self) -> IdleScanner:
        """The scanner, at work from now on."""
        scanner = self._scanner
        assert scanner is not None
        given = scanner, self._files
        threading.Thread(target=self._run, args=given, name="tierd-idle", daemon=True).start()
        self._files = contextlib.ExitStack()
        return scanner

    @staticmethod
    def _run(scanner: IdleScanner, files: contextlib.ExitStack) -> None:
        with contextlib.suppress(OSError):
            comm = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
            comm.write_text(threading.current_thread().name)
        give_up_all()  # The files are open, and those of processes are opened elsewhere.
        with files:
            scanner.run()

    def close(self) -> None:
        """Have the thread end, which closes the files after its step."""
        if self._scanner is not None:
            self._scanner.close()
        self._files.close()
        self._scanner = None

    @property
    def failure(self) -> UnavailableError | None:
        """Why scanning ended by itself."""
        return None if self._scanner is None else self._scanner.failure

    @property
    def stats(self) -> dict[str, int]:
        """Its counters; none when it is not in use."""
        return {} if self._scanner is None else dict(self._scanner.scan_get().stats)


class IdlePageSource(ScanSource):
    """An `AccessSource`: `ScanSource` with a scanner in this process."""

    name = "idlepage"

    def __init__(
        self,
        settings: IdlePageConfig | None = None,
        *,
        root: Path = Path("/"),
        scanning: Callable[[Path], Scanning] = Scanning,
    ) -> None:
        settings = settings or IdlePageConfig()
        self._scanning = scanning(root)
        super().__init__(
            ScanConfig(
                interval_ns=settings.interval_ns,
                cpu_limit=settings.cpu_limit,
                hot_threshold=settings.hot_threshold,
                cold_threshold=settings.cold_threshold,
                min_sampling_interval_ns=settings.min_sampling_interval_ns,
            ),
            root=root,
            open_control=self._scanning.open_control,
            open_ring=self._scanning.open_ring,
        )

    def available(self) -> Availability:
        """Whether idle page tracking is in this kernel and lets us in."""
        return host.availability(self._root)

    def _can_sample(self) -> bool:
        """A sampling interval needs nothing of the host."""
        return True

    def _gone(self) -> UnavailableError:
        """Why the scanner has ended."""
        failure = self._scanning.failure
        return failure or UnavailableError("the scanner has ended")

    @property
    def unwatched(self) -> int | None:
        """Times that 2 MiB of a process were passed over: there was no memory for histories."""
        return self._scanning.stats.get("history_full", 0)

    @property
    def passed_over(self) -> int | None:
        """Times that a process was passed over, as its pages could not be read."""
        return self._scanning.stats.get("passed_over", 0)

    @property
    def untracked(self) -> Mapping[str, int]:
        """Pages on no LRU list, and shared ones above the frames that were expected."""
        stats = self._scanning.stats
        return {"no_flag": stats.get("untracked", 0), "shared": stats.get("unshared", 0)}

    def close(self) -> None:
        """End the scanner."""
        super().close()
        self._scanning.close()
