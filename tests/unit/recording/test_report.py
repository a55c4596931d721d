# SPDX-License-Identifier: Apache-2.0
"""Reports: figures that are right, and pages that hold nothing but themselves."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from madeup_host import MadeUpHost, record

from tierd.cli import main
from tierd.config.whole import loads
from tierd.core.errors import ExitCode, TierdError
from tierd.core.migration import Fate
from tierd.engine.build import make_policy
from tierd.observe.recording.reader import Recording
from tierd.observe.recording.recorder import Recorder
from tierd.observe.recording.records import RecordedTarget, RecordedTick
from tierd.replay.policy import Replay
from tierd.report import page, text
from tierd.report.analysis import BLOCK_PAGES, SHARES, Report, analyse, find_areas, rows_of
from tierd.report.text import short

HOSTILE = "</text><script>alert(1)</script>\n\x1b[2J$x$"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of two processes, one with a name made to do harm."""
    path = tmp_path_factory.mktemp("report") / "a.rec"
    made = Recorder(path, 1 << 30)
    host = MadeUpHost(2, loads('[policy]\nmigration_cooldown = "2s"\n'), recorder=made, pages=4000)
    made.targets = lambda: [
        RecordedTarget(0, 100, HOSTILE, "/"),
        RecordedTarget(1, 101, "plain", "/"),
    ]
    host.run(50)
    made.close()
    return path


@pytest.fixture(scope="module")
def report(path: Path) -> Report:
    return analyse(Recording(path), columns=20, rows=30)


def test_the_figures_are_those_of_a_replay(path: Path, report: Report) -> None:
    replay = Replay(Recording(path), make_policy)
    for _ in replay:
        pass
    for index, name in enumerate(report.tiers):
        assert report.served[index].sum() == pytest.approx(replay.recorded.served[name])
    width = report.seconds[1]
    assert report.promoted.sum() * width == pytest.approx(replay.recorded.moved["promoted"] * 4096)
    assert report.demoted.sum() * width == pytest.approx(replay.recorded.moved["demoted"] * 4096)
    assert report.overall["dram"] == pytest.approx(replay.recorded.share("dram"))
    assert report.fates["moved"] == replay.recorded.moved.total()


def test_times_are_those_of_the_recorded_ticks(path: Path, report: Report) -> None:
    ticks = [tick for tick in Recording(path) if isinstance(tick, RecordedTick)]
    reports = [tick.report for tick in ticks if tick.report is not None]
    moved = np.array([each.count(Fate.MOVED) for each in reports])
    cpu_ns = np.array([each.cpu_ns for each in reports])[moved > 0]
    each_page = np.sort(np.repeat(cpu_ns / moved[moved > 0], moved[moved > 0]))
    times = report.move_page_cpu_ns
    assert (times.count, report.tick_ns.count) == (len(each_page), report.ticks)
    assert (times.max, times.sum) == pytest.approx((each_page[-1], each_page.sum()))
    took_ns = np.sort([tick.end_ns - tick.time_ns for tick in ticks])
    middle = took_ns[(len(took_ns) - 1) // 2]
    assert report.tick_ns.quantile(0.5) == pytest.approx(middle, rel=0.0101)
    rows = dict(text.totals(report))
    for name in ("a tick took", "CPU time of a moved page"):
        assert re.fullmatch(r"median \S+ \S+, 99 % \S+ \S+, longest \S+ \S+", rows[name])


def test_the_heat_map_holds_every_access_of_its_target(path: Path, report: Report) -> None:
    total = 0.0
    for tick in Recording(path):
        for batch in getattr(tick, "batches", ()):
            own = batch.page >> np.uint64(48) == report.shown
            total += float(batch.count[own].astype(np.float64).sum())
    pages = np.concatenate([
        np.full(area.last_row - area.first_row, area.pages_a_row) for area in report.areas
    ])  # fmt: skip
    held = float((report.heat * pages[:, None]).sum() * report.seconds[1])
    assert held == pytest.approx(total * report.area_share, rel=1e-6)


def test_the_working_set_is_the_fewest_pages_that_hold_a_share(path: Path) -> None:
    whole = analyse(Recording(path), columns=1, rows=5)
    pages: dict[int, float] = {}
    for tick in Recording(path):
        for batch in getattr(tick, "batches", ()):
            for key, count in zip(batch.page.tolist(), batch.count.tolist(), strict=True):
                pages[key] = pages.get(key, 0.0) + count
    held = sorted((count for count in pages.values() if count > 0), reverse=True)
    for index, share in enumerate(SHARES):
        fewest, so_far = 0, 0.0
        while so_far < share * sum(held) * (1 - 1e-9):
            so_far += held[fewest]
            fewest += 1
        assert whole.working_set[index, 0] / 4096 == pytest.approx(fewest, abs=1)


def test_a_process_can_be_chosen(path: Path) -> None:
    assert analyse(Recording(path), columns=5, rows=5, target=101).shown == 1
    with pytest.raises(TierdError, match="pid or number 777"):
        analyse(Recording(path), columns=5, rows=5, target=777)


def test_areas_leave_out_holes_and_divide_rows_by_size() -> None:
    block = np.array([*range(100), *range(10_000, 10_300)], np.uint64)
    areas, share = find_areas(block, np.ones(400), 40)
    assert share == 1.0
    assert [(a.start // BLOCK_PAGES, a.end // BLOCK_PAGES) for a in areas] == [
        (0, 100),
        (10_000, 10_300),
    ]
    assert [a.last_row - a.first_row for a in areas] == [10, 30]
    pages = np.array([0, 99 * 512 + 511, 5000 * 512, 10_000 * 512, 10_300 * 512 - 1], np.uint64)
    assert rows_of(pages, areas).tolist() == [0, 9, -1, 10, 39]
    many = np.arange(50, dtype=np.uint64) * np.uint64(1000)
    areas, share = find_areas(many, np.arange(50, dtype=np.float64), 30)
    assert len(areas) == 6
    assert 0 < share < 1


def test_text_is_plain_and_narrow(report: Report) -> None:
    told = text.render(report)
    assert told.isascii()
    assert max(map(len, told.splitlines())) <= 80
    assert "\x1b" not in told
    for words in ("heat map of", "share of accesses served by dram", "working set", "promoted"):
        assert words in told


class Page(HTMLParser):
    """What a page refers to, and whether its elements are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in ("meta", "!doctype"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_needs_nothing_else_and_runs_nothing(report: Report) -> None:
    made = page.render(report)
    parser = Page()
    parser.feed(made)
    assert parser.open == []
    assert "script" not in parser.tags
    assert parser.tags.count("svg") == 4
    assert all(link.startswith("data:image/png;base64,") for link in parser.links)
    assert "url(" not in made
    assert "nan" not in made.lower().replace("nanosecond", "")
    assert "prefers-color-scheme: dark" in made


def test_a_written_png_is_a_png() -> None:
    rgba = np.random.default_rng(1).integers(0, 256, (3, 5, 4), dtype=np.uint8)
    data = page.png(rgba)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, found = 8, {}
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(
            kind + body
        )
        found[kind] = body
        at += 12 + size
    assert struct.unpack(">II", found[b"IHDR"][:8]) == (5, 3)
    lines = zlib.decompress(found[b"IDAT"])
    assert b"".join(lines[i * 21 + 1 : i * 21 + 21] for i in range(3)) == rgba.tobytes()


def test_ticks_are_round_and_within() -> None:
    assert page.nice_ticks(10, 5) == [0, 2, 4, 6, 8, 10]
    for top in (0.003, 0.7, 1.0, 17.3, 9.9e6):
        ticks = page.nice_ticks(top)
        assert 2 <= len(ticks) <= 7
        assert ticks[-1] <= top * 1.000001


@pytest.mark.parametrize("form", ["text", "html"])
def test_the_command_writes_where_it_is_told(
    path: Path, form: str, tmp_path: Path, capfdbinary: Any
) -> None:
    out = tmp_path / "out"
    assert main(["report", str(path), "--format", form, "-o", str(out)]) == ExitCode.OK
    assert main(["report", str(path), "--format", form]) == ExitCode.OK
    assert capfdbinary.readouterr().out == out.read_bytes()
    assert (
        main(["report", str(path), "-o", str(tmp_path / "no" / "x.html")]) == ExitCode.UNAVAILABLE
    )


def test_a_recording_without_ticks_or_accesses_is_told(tmp_path: Path, capsys: Any) -> None:
    record(tmp_path / "empty.rec", 1, ticks=0)
    assert main(["report", str(tmp_path / "empty.rec")]) == ExitCode.FAILURE
    assert "holds no tick" in capsys.readouterr().err
    record(tmp_path / "quiet.rec", 1, ticks=3, samples=0)
    for form in ("text", "html"):
        assert main(["report", str(tmp_path / "quiet.rec"), "--format", form]) == ExitCode.OK
        assert "o access was seen" in capsys.readouterr().out


def test_names_cannot_command_a_terminal() -> None:
    assert short("a\x1b[2Jb\n") == "a\\x1b[2Jb\\n"
    assert len(short("x" * 500)) == 40


def test_the_daemon_does_not_import_what_draws() -> None:
    script = (
        "import sys, tierd.cli.run, tierd.engine.build, tierd.observe.recording.recorder\n"
        "late = ('tierd.report',)\n"
        "bad = [m for m in sys.modules if m.startswith(late)]\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
