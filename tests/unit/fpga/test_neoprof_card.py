# SPDX-License-Identifier: Apache-2.0
"""The binding and the trace command, over both libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from neoprof_build import FPGA

from neoprof import Card, CardError, regs
from neoprof.__main__ import main
from neoprof.card import DECLARATIONS, NONE, WRITE, Kind

PAGE = 4096


@pytest.fixture(params=["model", "rtl"])
def card(request: pytest.FixtureRequest, libraries: Path) -> Iterator[Card]:
    kind: Kind = request.param
    with Card(kind, library=libraries / f"libneoprof-{kind}.so") as opened:
        yield opened


def _prototypes(text: str) -> list[str]:
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return [
        " ".join(found.split())
        for found in re.findall(r"^[\w ]+\**np_card_\w+\([^)]*\);", text, re.MULTILINE)
    ]


def test_the_binding_declares_what_the_header_declares() -> None:
    header = (FPGA / "include" / "neoprof_card.h").read_text()
    # Every declaration of the binding but the type is a prototype, and they are the header's.
    assert len(_prototypes(DECLARATIONS)) == DECLARATIONS.count(";") - 1
    assert _prototypes(DECLARATIONS) == _prototypes(header)


def test_hot_pages_are_reported_once_with_their_count(card: Card) -> None:
    card.start(3)
    card.push([unit * PAGE for unit in (5, 9, 5, 5, 9, 5, 5, 5)])
    assert card.drain() == [(5, 4)]
    card.push([9 * PAGE | WRITE, NONE, 9 * PAGE])
    assert card.drain() == [(9, 4)]
    assert card.drain() == []


def test_snapshot_accounts_for_every_request(card: Card) -> None:
    card.start(100, what=2)
    card.push([unit * PAGE | (WRITE if unit % 4 else 0) for unit in range(1000)])
    card.push([WRITE | 1 << 41])
    shot = card.snapshot()
    assert shot.offered == 1001
    assert (shot.counted, shot.skipped_type, shot.skipped_range) == (750, 250, 1)
    assert (shot.read_beats, shot.write_beats, shot.busy_cycles) == (250, 751, 501)
    assert sum(shot.histogram) == 1 << 19
    assert sum(bin_ * count for bin_, count in enumerate(shot.histogram[:8])) == 750


def test_misaligned_and_odd_sized_accesses_never_reach_the_card(card: Card) -> None:
    for offset, size in ((1, 2), (2, 4), (4, 8), (0, 3), (0, 16), (regs.SIZE, 8)):
        with pytest.raises(CardError, match="EINVAL"):
            card.read(offset, size)
        with pytest.raises(CardError, match="EINVAL"):
            card.write(offset, 0, size)
    assert card.read(regs.VENDOR_BUS_ERRORS) == 0


def test_unknown_offsets_answer_with_an_error_and_are_counted(card: Card) -> None:
    with pytest.raises(CardError, match="EIO"):
        card.read(0x800)
    with pytest.raises(CardError, match="EIO"):
        card.write(regs.VENDOR_ID, 1)
    assert card.read(regs.VENDOR_BUS_ERRORS) == 2


def test_parts_of_a_register_can_be_read_and_written(card: Card) -> None:
    card.write(regs.CHMU0_CFG0 + 4, 0x1234, 2)
    assert card.read(regs.CHMU0_CFG0) == 0x1234 << 32
    assert card.read(regs.CHMU0_CFG0 + 5, 1) == 0x12
    assert card.read(regs.VENDOR_ID, 4) == regs.VENDOR_ID_MAGIC_VALUE


def test_a_refused_configuration_says_why(card: Card) -> None:
    with pytest.raises(CardError, match="CONFIG_ERROR is 0x2"):
        card.start(5, unit_log2=30)


def test_the_interrupt_follows_the_fill_threshold(card: Card) -> None:
    card.start(0)
    card.write(regs.CHMU0_CFG2, 2)
    cfg0 = card.read(regs.CHMU0_CFG0) | regs.CHMU0_CFG0_FILL_INT_ENABLE_MASK
    card.write(regs.CHMU0_CFG0, cfg0)
    card.push([PAGE])
    card.settle()
    assert not card.irq
    card.push([2 * PAGE])
    card.settle()
    assert card.irq
    card.drain()
    card.write(regs.CHMU0_STATUS, regs.CHMU0_STATUS_FILL_MASK)
    card.settle()
    assert not card.irq


def test_a_hardware_reset_forgets_everything(card: Card) -> None:
    card.start(0)
    card.push([unit * PAGE for unit in range(100)])
    card.reset()
    assert card.read(regs.CHMU0_HOTLIST) == 0
    assert card.read(regs.RANGE_BITMAP) == 0
    card.start(0)
    card.push([7 * PAGE])
    assert card.drain() == [(7, 1)]
    assert card.snapshot().counted == 1


def test_a_missing_library_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="make -C fpga build"):
        Card(library=tmp_path / "none.so")


def test_the_rtl_has_one_geometry(libraries: Path) -> None:
    with pytest.raises(CardError, match="EINVAL"):
        Card("rtl", library=libraries / "libneoprof-rtl.so", log2_width=10)


@pytest.mark.parametrize("kind", ["model", "rtl"])
def test_the_command_prints_the_hot_list_of_a_trace(
    kind: str,
    libraries: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIERD_NEOPROF_LIBRARY_DIR", str(libraries))
    text = tmp_path / "trace.txt"
    text.write_text("# two pages\n" + "R 0x5040\nW 0x5f80\n" * 6 + "R 4096\n")
    assert main([str(text), "--card", kind, "--threshold", "10", "--statistics"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "# address count\n0x5000 11\n"
    assert "offered 13 counted 13" in printed.err
    array = tmp_path / "trace.npy"
    np.save(array, np.full(12, 3 << 21, dtype=np.uint64))
    assert main([str(array), "--card", kind, "--threshold", "10", "--unit", "21"]) == 0
    assert capsys.readouterr().out == "# address count\n0x600000 11\n"


def test_a_bad_line_of_a_trace_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.txt"
    trace.write_text("R 0x1000\nX 5\n")
    assert main([str(trace)]) == 1
    assert "trace.txt:2: found 'X 5'" in capsys.readouterr().err
