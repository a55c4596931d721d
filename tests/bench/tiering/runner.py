# SPDX-License-Identifier: Apache-2.0
"""Runs cells: boots the machine for each, and reads what the plugin modelled."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import image
import numpy as np
from figures import FAST, seconds_to_95, shares
from results import DEFAULTS, RETRY_SEED, Cell
from variants import VARIANTS, placed

from tierd.core.errors import TierdError
from tierd_lab import Machine
from tierd_lab.host import Kernel, find_kernel
from tierd_lab.plugin import DUMP, PROFILE, WINDOW
from tierd_lab.timemodel import Region
from tierd_lab.traffic import Counts, read_dump
from workloads import Workload

sys.path.insert(0, str(Path(__file__).resolve().parent / "guest"))

from parcel import Parcel
from sealed import Sealed

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 1800.0
"""Host seconds for a cell; the machine is given up then."""
SEED = 1
STEP_S = 0.618034
"""From one seed to the next the workload starts so much later in a second, the beat of a service's
passes: any few seeds in a row are spread over it."""


def end_on_sigterm() -> None:
    """Have SIGTERM end the program in order: the archive is too large to be left behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class CellError(TierdError):
    """A cell did not run."""


class NotReadyError(CellError):
    """A cell was not begun: its machine could not be brought to where cells begin."""


class Runner:
    """Cells, each a boot of its own. Use as a context manager.

    Args:
        machine: on which they run.
        kernel: that is booted; None: the newest that is installed.
        limit_s: host seconds for a cell.

    Attributes:
        counted: workloads and seeds of which the requests of each page are known, for the oracle.
        profile: where a cell's counted blocks go, and with the suffix .symbols what lies where
            (hotspots.py); None: they are not counted.
        preloads: libraries that are loaded before QEMU, for tests of the machine itself.
    """

    def __init__(
        self, machine: Machine, kernel: Kernel | None = None, *, limit_s: float = LIMIT_S
    ) -> None:
        self._machine, self._limit_s = machine, limit_s
        self._folder = tempfile.TemporaryDirectory(prefix="tierd-bench-")
        self.kernel = kernel or find_kernel()
        self._image = Path(self._folder.name) / "image"
        self._image_hash = ""
        self.counted: dict[tuple[Workload, int], bytes] = {}
        self.profile: Path | None = None
        self.preloads: list[Path] = []

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def run(
        self,
        workload: Workload,
        method: str,
        *,
        variant: str = DEFAULTS,
        seed: int = SEED,
        pages: bool = False,
    ) -> Cell:
        """Run a cell.

        Args:
            workload, method: which; where pages are placed, `counted` needs workload and seed.
            variant: of tierd's settings (variants.py).
            seed: of the machine's random numbers, and of the moment at which the workload starts.
                The same seed gives the same cell bit for bit, as long as the tree, its place
                and the programs of the host are the same.
            pages: put the requests of each virtual page into `counted`.

        What could not be begun is tried once more with another seed, for nothing of it was seen and
        the same one would fail alike; the cell tells which (`facts["seed"]`).

        Returns:
            The cell, with `why` if it failed.
        """
        cell = Cell(workload.name, method, variant=variant, seed=seed)
        try:
            if not self._image_hash:
                image.build(self.kernel, self._image)
                self._image_hash = _hash(self._image)
            try:
                return self._in_folder(workload, cell, pages, seed)
            except NotReadyError as error:
                other = seed + RETRY_SEED
                told = f"{cell.key.label}: {error}: once more, with seed {other}"
                print(told, file=sys.stderr)
                return self._in_folder(workload, cell, pages, other)
        except (TierdError, OSError) as error:
            why = " ".join(str(error).split())[-600:]
            return replace(cell, why=f"{type(error).__name__}: {why}")

    def _in_folder(self, workload: Workload, cell: Cell, pages: bool, seed: int) -> Cell:
        with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
            return self._run(workload, cell, pages, Path(folder), seed)

    def _run(self, workload: Workload, cell: Cell, pages: bool, folder: Path, seed: int) -> Cell:
        told: dict[str, dict[str, Any]] = {}
        begin = time.monotonic()
        request = {
            "method": cell.method,
            "settings": VARIANTS[cell.variant].toml,
            "internal": list(VARIANTS[cell.variant].internal),
            "lies": VARIANTS[cell.variant].lies,
            "trial": list(VARIANTS[cell.variant].trial),
            "fast": workload.fast,
            "pages": pages,
            "profile": self.profile is not None,
            "phase_s": phase_s(seed),
            "command": [str(ROOT / "build/workloads" / workload.name), *workload.arguments],
        }
        with Sealed(self._machine, folder) as machine:
            parcel = Parcel(folder / WINDOW)
            parcel.put("request", json.dumps(request).encode())
            if placed(cell.method, cell.variant):
                parcel.put("counts", self.counted[workload, cell.seed])
            machine.start(
                *(self.kernel, self._image, seed),
                profile=self.profile is not None,
                preloads=self.preloads,
            )
            machine.follow(_taker(told, begin), begin + self._limit_s)
            if "failed" in told:
                why = f"{told['failed']['why']}; it said last: {machine.last_words()}"
                raise CellError(why) if "ready" in told else NotReadyError(why)
            frames = parcel.get("pages") if pages else b""
            if self.profile is not None:
                shutil.copy(folder / PROFILE, self.profile)
                self.profile.with_suffix(".symbols").write_bytes(parcel.get("symbols"))
        if not told["end"]["ok"]:
            raise CellError("the workload's answer is wrong")
        counts = read_dump(folder / DUMP)
        if counts.region is None:
            raise CellError("the workload's marks were not seen")
        if pages:
            self.counted[workload, cell.seed] = requests_of_pages(frames, counts)
        cell = _measured(cell, workload, counts.region, told)
        cell.facts["seed"], cell.facts["image"] = seed, self._image_hash
        cell.facts["dump"] = _hash((folder / DUMP).with_suffix(".pages"))
        cell.facts["host_s"] = {name: round(event["at"], 1) for name, event in told.items()}
        return cell


def phase_s(seed: int) -> float:
    """Where in a second the workload starts, seconds; 0 for seed 1."""
    return round((seed - 1) * STEP_S % 1.0, 6)


def _hash(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:16]


def _taker(told: dict[str, dict[str, Any]], begin: float) -> Callable[[dict[str, Any]], bool]:
    """Keeps events and when they came; content with the last one."""

    def take(event: dict[str, Any]) -> bool:
        told[event["event"]] = {**event, "at": time.monotonic() - begin}
        return event["event"] in ("done", "failed")

    return take


def requests_of_pages(frames: bytes, counts: Counts) -> bytes:
    """What the oracle reads: a workload's pages, ascending, and the requests of each.

    Args:
        frames: virtual page numbers and then frames, uint64, as guest/cell.py tells them.

    Returns:
        Virtual page numbers and then requests, uint64.
    """
    vpn, pfn = np.frombuffer(frames, "<u8").reshape(2, -1)
    order = np.argsort(vpn)
    return np.stack([vpn[order], counts.requests[pfn[order]]]).astype("<u8").tobytes()


def _measured(
    cell: Cell, workload: Workload, region: Region, told: dict[str, dict[str, Any]]
) -> Cell:
    figures, ready = told["done"]["method"], told["ready"]
    curve = shares(region.curve, region.interval_ns)
    return replace(
        cell,
        seconds=region.ns / 1e9,
        fast_share=region.share(FAST),
        seconds_to_95=seconds_to_95(curve),
        promoted=figures.pop("promoted", 0),
        demoted=figures.pop("demoted", 0),
        ping_pong=figures.pop("bounced", None),
        instructions=region.instructions,
        curve=curve,
        facts={
            "size": workload.size,
            "work": workload.work,
            "fast": workload.fast,
            "free": ready["free"],
            "fast_at_start": round(ready["fast_at_start"], 6),
            "arranged": ready["arranged"],
            "max_rss": told["end"]["max_rss"],
            "guest_s": round(region.guest_ns / 1e9, 3),
            "spent_s": {owner: round(ns / 1e9, 6) for owner, ns in region.spent_ns.items()},
            "lines": {owner: list(counts) for owner, counts in region.lines.items()},
            "waited_s": {str(n): round(ns / 1e9, 6) for n, ns in region.waited_ns.items()},
            "requests": {str(n): list(counts) for n, counts in region.node_requests.items()},
            "moves": told["done"]["moves"],
            "method": figures,
            "spaces_dropped": region.spaces_dropped,
        },
    )
