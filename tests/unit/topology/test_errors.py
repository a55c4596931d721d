# SPDX-License-Identifier: Apache-2.0
"""Memory errors: captured trace text, made-up counters of EDAC and of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.core import bounds
from tierd.topology.error_report import ErrorReport, Kind, parse
from tierd.topology.errors import EVENTS, INSTANCE, MemoryErrors

LINES = (Path(__file__).parents[2] / "fixtures/trace/memory-errors.txt").read_text().splitlines()
"""Of Linux 6.12 in lab machines: tests/vm/test_memory_errors.py makes such events."""
FAILURE, POISON, POISON_UNMAPPED, MEDIA, DRAM = LINES
FOLDER = Path("sys/kernel/tracing/instances") / INSTANCE


class Host:
    """A tree that the kernel could show: two nodes of four blocks of 128 MiB, one controller."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, 0
        for name in ("events/enable", "buffer_size_kb", "trace", "trace_pipe"):
            self.write(FOLDER / name, "")
        for event in EVENTS:
            self.write(FOLDER / "events" / event / "enable", "0")
        self.overrun(0)
        self.write("sys/devices/system/memory/block_size_bytes", "8000000")
        for block in range(8):
            (root / f"sys/devices/system/node/node{block // 4}/memory{block}").mkdir(parents=True)
        self.edac(3, 0)
        self.corrupted(0)
        self.errors = MemoryErrors(root, lambda: self.now)

    def write(self, path: Path | str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def overrun(self, count: int) -> None:
        self.write(FOLDER / "per_cpu/cpu0/stats", f"entries: 0\noverrun: {count}\nbytes: 0\n")

    def edac(self, corrected: int, uncorrected: int) -> None:
        self.write("sys/devices/system/edac/mc/mc0/ce_count", f"{corrected}\n")
        self.write("sys/devices/system/edac/mc/mc0/ue_count", f"{uncorrected}\n")

    def corrupted(self, pages: int) -> None:
        self.write("proc/meminfo", f"MemTotal: 9 kB\nHardwareCorrupted: {4 * pages:5} kB\n")

    def traced(self, *lines: str) -> None:
        with (self.root / FOLDER / "trace_pipe").open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def polled(self) -> dict[tuple[int | None, str], int]:
        self.errors.poll()
        return dict(self.errors.totals.counts)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path)
    assert made.polled() == {}
    return made


def at(line: str, address: int) -> str:
    """The failure of the page at an address."""
    head, rest = line.split("pfn ")
    return f"{head}pfn {address >> 12:#x}: {rest.split(maxsplit=1)[1]}"


def test_events_become_reports() -> None:
    failure = parse(FAILURE)
    assert failure is not None
    assert (failure.kind, failure.device, failure.count) == (Kind.MEMORY_FAILURE, "", 1)
    assert failure.address is not None and failure.address % 4096 == 0
    for line, kind in ((POISON, Kind.POISON), (POISON_UNMAPPED, Kind.POISON)):
        poison = parse(line)
        assert poison is not None
        assert (poison.kind, poison.device, poison.count) == (kind, "mem0", 1)
        assert (poison.address is None) == (line is POISON_UNMAPPED)
    for line, kind in ((MEDIA, Kind.MEDIA_UNCORRECTED), (DRAM, Kind.MEDIA_CORRECTED)):
        media = parse(line)
        assert media is not None and media.device_address is not None
        assert (media.kind, media.device) == (kind, "mem0")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "CPU:1 [LOST 3 EVENTS]",
        FAILURE.replace("pfn 0x", "pfn 0y"),
        POISON.replace("dpa=0x", "dpa=?"),
        POISON.replace("memdev=", "device="),
        POISON.replace(" cxl_poison: ", " cxl_other: "),
        POISON.split("[0", maxsplit=1)[0] + POISON.split(": ", maxsplit=1)[1],
    ],
)
def test_what_is_no_such_event_is_no_report(line: str) -> None:
    assert parse(line) is None


@given(st.text(), st.integers(0, len(POISON)), st.sampled_from(LINES))
def test_no_line_stops_the_reader(text: str, place: int, line: str) -> None:
    found = parse(line[:place] + text + line[place:])
    assert found is None or isinstance(found, ErrorReport)


def test_a_name_of_a_command_is_no_event() -> None:
    """A process may call itself what it likes, in 15 bytes."""
    words = FAILURE.split("memory_failure_event", maxsplit=1)
    line = f"  cxl_poison: x-1{words[0][words[0].index(' [') :]}other_event: memdev=mem0 dpa=0x40"
    assert parse(line) is None


def test_an_address_tells_the_node(host: Host) -> None:
    for address in (0, 4 << 27, (8 << 27) - 1, 8 << 27):
        host.traced(at(FAILURE, address))
    host.corrupted(4)
    assert host.polled() == {(node, "memory_failure"): n for node, n in ((0, 1), (1, 2), (None, 1))}
    assert host.errors.totals.latest[1, Kind.MEMORY_FAILURE].address == (8 << 27) - 4096


def test_malformed_lines_are_counted_and_stop_nothing(host: Host) -> None:
    host.traced("nonsense", FAILURE.replace("pfn", "pnf"), "CPU:1 [LOST 3 EVENTS]", MEDIA)
    host.traced("\x00\xff: ")
    assert sum(host.polled().values()) == 1
    assert host.errors.totals.malformed == 3


def test_overwritten_events_are_counted_as_lost(host: Host) -> None:
    for overrun in (5, 12):
        host.overrun(overrun)
        host.traced(MEDIA)
        host.errors.poll()
    assert host.errors.totals.lost == 12


def test_poison_counts_once_until_it_is_cleared(host: Host) -> None:
    host.traced(POISON, POISON)
    host.errors.poll()
    host.traced(POISON)
    assert sum(host.polled().values()) == 1
    host.traced(POISON.replace("trace_type=List", "trace_type=Clear"))
    assert sum(host.polled().values()) == 1
    host.traced(POISON)
    assert sum(host.polled().values()) == 2


def test_poisoned_addresses_that_are_remembered_are_bounded(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "ERROR_ADDRESSES", 2)
    first, second, third = (POISON.replace("dpa=0x", f"dpa=0x{n}") for n in (1, 2, 3))
    host.traced(first, second, third, second, third)
    assert sum(host.polled().values()) == 3
    host.traced(first)
    assert sum(host.polled().values()) == 4


def test_controllers_counts_are_those_since_the_start(host: Host) -> None:
    host.edac(5, 1)
    assert host.polled() == {(None, "corrected"): 2, (None, "uncorrected"): 1}
    host.edac(0, 1)  # somebody reset it
    assert host.polled() == {(None, "corrected"): 2, (None, "uncorrected"): 1}
    host.edac(1, 1)
    assert host.polled() == {(None, "corrected"): 3, (None, "uncorrected"): 1}
    host.write("sys/devices/system/edac/mc/mc0/ce_count", "many")
    (host.root / "sys/devices/system/edac/mc/mc0/ue_count").unlink()
    assert host.polled() == {(None, "corrected"): 3, (None, "uncorrected"): 1}


def test_pages_taken_away_without_a_failure_were_offlined(host: Host) -> None:
    host.corrupted(2)
    assert host.polled() == {(None, "soft_offline"): 2}
    host.traced(at(FAILURE, 0))
    host.corrupted(3)
    assert host.polled() == {(None, "soft_offline"): 2, (0, "memory_failure"): 1}
    # Traced before it is counted.
    host.traced(at(FAILURE, 0))
    host.errors.poll()
    host.corrupted(4)
    assert host.polled() == {(None, "soft_offline"): 2, (0, "memory_failure"): 2}
    # A page that fails again is not taken away again, and hides no other.
    host.traced(at(FAILURE, 0).replace("dirty LRU page", "already poisoned"))
    host.errors.poll()
    host.corrupted(5)
    assert host.polled() == {(None, "soft_offline"): 3, (0, "memory_failure"): 3}
    # One that is not counted by the next call never is.
    host.traced(at(FAILURE, 0))
    host.errors.poll()
    host.errors.poll()
    host.corrupted(6)
    assert host.polled() == {(None, "soft_offline"): 4, (0, "memory_failure"): 4}
    # Memory was removed.
    host.corrupted(1)
    host.errors.poll()
    host.corrupted(2)
    assert host.polled() == {(None, "soft_offline"): 5, (0, "memory_failure"): 4}


def test_a_host_that_does_not_tell_reports_nothing(tmp_path: Path) -> None:
    errors = MemoryErrors(tmp_path)
    errors.poll()
    errors.poll()
    assert errors.totals.counts == {}


def test_without_tracepoints_the_rest_is_read_and_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(tmp_path)
    for name in ("trace_pipe", "trace"):
        (tmp_path / FOLDER / name).unlink()
        (tmp_path / FOLDER / name).mkdir()
    host.errors.poll()
    host.edac(4, 0)
    assert host.polled() == {(None, "corrected"): 1}
    said = [each.message for each in caplog.records]
    assert sum("event=memory_errors_not_read" in each for each in said) == 1


def test_events_of_a_module_that_comes_later_are_read(tmp_path: Path) -> None:
    host = Host(tmp_path)
    later = tmp_path / FOLDER / "events/cxl"
    later.rename(tmp_path / "aside")
    host.errors.poll()
    assert host.errors.events == {EVENTS[0]}
    (tmp_path / "aside").rename(later)
    host.errors.poll()
    assert host.errors.events == set(EVENTS)
    assert (later / "cxl_poison/enable").read_text() == "1"


def test_the_log_is_bounded_and_what_it_lacks_is_counted(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    most = bounds.ERROR_LOG_LINES
    host.traced(*[MEDIA] * (most + 3))
    host.errors.poll()
    host.traced(MEDIA)
    host.errors.poll()
    assert host.errors.totals.not_logged == 4
    host.now += bounds.ERROR_LOG_NS
    host.traced(MEDIA)
    host.errors.poll()
    assert host.errors.totals.not_logged == 4
    said = [each.message.split()[0] for each in caplog.records]
    assert said.count("event=memory_error") == most + 1
    assert said.count("event=memory_errors_not_logged") == 2
    assert sum(host.errors.totals.counts.values()) == most + 5
