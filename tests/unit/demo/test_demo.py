# SPDX-License-Identifier: Apache-2.0
"""What `make demo` prints, on guests that tell what they are asked to."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import struct
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "demo"
TOTALS = {
    "promoted_pages": 900,
    "demoted_pages": 100,
    "ping_pong_pages": 0,
    "lost_samples": 0,
    "move_seconds": 1.0,
    "move_cpu_seconds": 0.5,
    "fast_path": {"most_in_a_second": 4096},
}


PAGE = "pages/demo.html"
BEFORE = {"pages": 1280, "map": "2110" * 320}
AFTER = {"pages": 1280, "map": "3110" * 319 + "2010"}


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The program, with the modules beside it."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for beside in ("figures", "page", "story", "tables"):
        monkeypatch.delitem(sys.modules, beside, raising=False)
    spec = importlib.util.spec_from_file_location("demo_program", FOLDER / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "build_module", lambda: Path("/nowhere/tierd.ko"))
    monkeypatch.chdir(tmp_path)
    return module


def told(phase: str, seconds: int) -> list[dict[str, Any]]:
    """What a guest tells of one run."""
    report = {"phase": phase, "hot_pages": 1000, "updates": 1000, "hot_on_node": {"1": 1.0}}
    lines: list[dict[str, Any]] = [
        {"event": "populating", "of": phase, "size": "1200M"},
        {**report, **BEFORE, "event": "start", "t": 0.0, "clock": 50.0, "fast_share": 0.07},
        {"event": "room", "of": phase, "free_bytes": 1000 * 4096, "kept_bytes": 200 * 4096},
        {"event": "handed_over", "of": phase, "clock": 50.5},
    ]
    for second in range(1, seconds + 1):
        share = min(0.97, 0.31 * second)
        sample = {"event": "sample", "t": float(second), "clock": 50.0 + second}
        lines.append({**report, **sample, "fast_share": share})
    lines.append({"phase": phase, "tierd": TOTALS})
    lines.append({"event": "tierd_cpu", "of": phase, "seconds": 2.0})
    end = {"event": "end", "t": seconds + 0.5, "clock": 51.0 + seconds, "checksum_ok": True}
    lines.append({**report, **end, **AFTER, "fast_share": lines[-3]["fast_share"]})
    lines.append({"event": "tierd_exit", "of": phase, "code": 0})
    return lines


def play(
    demo: Any, monkeypatch: pytest.MonkeyPatch, *missing: str, dies_in: str = ""
) -> list[tuple[str, list[str]]]:
    """Have guests answer, or die in a run; which machines were booted for which sources."""
    booted = []

    def run(machine: Any, command: list[str], **more: Any) -> Any:
        asked = [command[i + 1] for i, word in enumerate(command) if word == "--source"]
        booted.append((machine.name, asked))
        more["on_line"](json.dumps({"event": "tlbtick", "period_us": 4000}))
        for phase in asked or ["without", "with"]:
            if phase == dies_in:
                raise demo.GuestError("the guest died before the command ended")
            for line in [] if phase in missing else told(phase, 6):
                more["on_line"](json.dumps(line))
        return SimpleNamespace(
            exit_status=0, timed_out=False, kernel="6.12", accelerator="tcg", duration_s=100.0
        )

    monkeypatch.setattr(demo, "run", run)
    return booted


def test_the_demo_ends_with_the_sources_side_by_side_and_one_line_of_json(
    demo: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    booted = play(demo, monkeypatch)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--compare", "--page", PAGE])
    assert demo.main() == 0
    assert booted == [("dram-cxl", []), ("dram-cxl-card", ["neoprof", "scan", "damon"])]
    out, err = capsys.readouterr()
    lines = out.splitlines()
    result = json.loads(lines[-1])
    assert result["fast_share_after"] == 0.97
    assert result["seconds_to_90_percent"] == 2.5
    assert result["checksum_ok"] is True
    sources = result["compared"]["sources"]
    assert list(sources) == ["neoprof", "scan", "damon"]
    assert sources["neoprof"]["moves_per_hot_page"] == 1.0
    assert sources["neoprof"]["most_bytes_promoted_in_a_second"] == 4096
    rows = [line.split() for line in lines if line.startswith("  neoprof")]
    # 200 of 1000 hot pages find no room: as many must leave for them.
    figures = ["900", "100", "1.0", "1.2", "0", "0.0", "2.0"]
    assert rows == [["neoprof", "0.97", "2.5", "2.5", *figures]]
    assert "damon: the workload takes its memory, 1200M" in err
    assert "scan: guest second   6.0: served by DRAM  97.0%" in err


def test_a_source_without_an_end_is_a_failure(
    demo: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(demo, monkeypatch, "scan")
    monkeypatch.setattr(sys, "argv", ["demo.py", "--source", "scan", "--source", "neoprof"])
    assert demo.main() == 1
    out, err = capsys.readouterr()
    assert list(json.loads(out.splitlines()[-1])["sources"]) == ["neoprof"]
    assert "the run with scan did not end" in err


def test_what_was_told_before_the_guest_died_is_not_lost(
    demo: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(demo, monkeypatch, dies_in="scan")
    monkeypatch.setattr(sys, "argv", ["demo.py", "--compare", "--page", PAGE])
    assert demo.main() == 1
    out, err = capsys.readouterr()
    result = json.loads(out.splitlines()[-1])
    assert result["fast_share_after"] == 0.97
    assert list(result["compared"]["sources"]) == ["neoprof"]
    assert result["compared"]["kernel"] is None
    assert "the guest died before the command ended" in err
    assert "the run with scan did not end" in err


def test_a_guest_that_dies_without_tierd_leaves_no_result(
    demo: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(demo, monkeypatch, dies_in="without")
    monkeypatch.setattr(sys, "argv", ["demo.py", "--compare", "--page", PAGE])
    assert demo.main() == 1
    assert capsys.readouterr().out == ""


def pictures(page: str) -> list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    """The pixels of a page's pictures, uint8[rows, columns, 4]."""
    found = []
    for data in re.findall(r"data:image/png;base64,([^\"]+)", page):
        picture = base64.b64decode(data)
        width, height = struct.unpack(">II", picture[16:24])
        packed = picture[picture.index(b"IDAT") + 4 : picture.index(b"IEND") - 8]
        lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + 4 * width)
        found.append(lines[:, 1:].reshape(height, width, 4))
    return found


def test_the_page_shows_every_page_before_and_after_and_the_shares(
    demo: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(demo, monkeypatch)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--page", PAGE])
    assert demo.main() == 0
    page = Path(PAGE).read_text()
    assert f"A picture of it: {PAGE}" in capsys.readouterr().out
    assert "Before: 0 of 320 hot pages in DRAM" in page
    assert "After: 319 of 320 hot pages in DRAM" in page
    colours = np.array(list(sys.modules["page"].COLOURS.values()))
    for picture, report in zip(pictures(page), (BEFORE, AFTER), strict=True):
        shown = picture.reshape(-1, 4)
        assert (shown[:, :3] == colours[[int(each) for each in report["map"]]]).all()
    # The curves of both runs end at 97 %.
    ends = [float(each) for each in re.findall(r"<polyline[^>]*,([0-9.]+)\"", page)]
    assert ends == pytest.approx([10 + 160 * 0.03] * 2, abs=0.1)
    # A hot page of four came to DRAM, but for the last; one cold page went the other way.
    assert "<td>hot</td><td>0</td><td>1</td><td>319</td><td>0</td>" in page
    assert "<td>cold</td><td>639</td><td>320</td><td>0</td><td>1</td>" in page
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_a_page_of_a_workload_that_was_ended_shows_what_there_is(
    demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(demo, monkeypatch)
    monkeypatch.setattr(sys.modules[__name__], "AFTER", {"pages": 1280})
    monkeypatch.setattr(sys, "argv", ["demo.py", "--page", PAGE])
    demo.main()
    page = Path(PAGE).read_text()
    assert "Before: 0 of 320" in page
    assert "After:" not in page
