# SPDX-License-Identifier: Apache-2.0
"""The machine of the benchmark's cells: its files, its command line, and what it is handed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/tiering"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/tiering/guest"))

import image
import sealed
from methods import Given, Tierd
from parcel import PARTS, WINDOW_BYTES, Parcel
from runner import phase_s, requests_of_pages
from variants import VARIANTS

from tierd.config.whole import load, loads
from tierd_lab import Machine, plugin
from tierd_lab.host import Kernel
from tierd_lab.traffic import Counts

KERNEL = Kernel("6.12.0-none", Path("/boot/vmlinuz-6.12.0-none"), headers=False)


def entries(archive: Path) -> Iterator[tuple[str, int, bytes]]:
    """Name, mode and content of each member of a "newc" archive."""
    data, at = archive.read_bytes(), 0
    while data[at : at + 6] == b"070701":
        fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, length = fields[1], fields[6], fields[11]
        name = data[at + 110 : at + 110 + length - 1].decode()
        begin = at + 110 + length + -(110 + length) % 4
        yield name, mode, data[begin : begin + size]
        at = begin + size + -size % 4


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("image") / "archive"
    assert image.build(KERNEL, file) == file.stat().st_size
    return file


def test_the_same_tree_gives_the_same_archive(archive: Path, tmp_path: Path) -> None:
    image.build(KERNEL, tmp_path / "again")
    assert archive.read_bytes() == (tmp_path / "again").read_bytes()


def test_the_archive_has_what_a_cell_starts_and_the_kernel_reads_it(archive: Path) -> None:
    names = {name: mode for name, mode, _ in entries(archive)}
    root = f"{image.INSIDE}{image.ROOT}"
    for name in (
        "init",
        "bin/busybox",
        f"{image.INSIDE}/init",
        f"{image.INSIDE}/usr/bin/numactl",
        f"{root}/tests/bench/tiering/guest/cell.py",
        f"{root}/tests/support/card_window.py",
        f"{root}/fpga/include/neoprof_window.h",
        f"{root}/daemon/tierd/__init__.py",
    ):
        assert names[name] & 0o170000 == 0o100000, name
    assert names[f"{image.INSIDE}/lib"] & 0o170000 == 0o120000
    listed = subprocess.run(
        ["busybox", "cpio", "-t"], stdin=archive.open("rb"), capture_output=True, check=True
    )
    assert listed.stdout.decode().split("\n")[:-1] == [n for n in names if n != "TRAILER!!!"]


def test_a_folder_comes_before_what_is_in_it(archive: Path) -> None:
    """The kernel makes no folders on its own, and leaves out what has none."""
    made = {"", "."}
    for name, mode, _ in entries(archive):
        if name != "TRAILER!!!":
            assert str(Path(name).parent) in made, name
        if mode & 0o170000 == 0o040000:
            made.add(name)


def test_libraries_and_links_lead_somewhere() -> None:
    found = image.contents(KERNEL)
    for name, path in found.items():
        if path.is_symlink():
            target = path.parent.resolve() / path.readlink()
            place = str(target.parent.resolve() / target.name).lstrip("/")
            assert place in found or target.is_dir(), f"{name} -> {target}"
    for program in ("usr/bin/bash", "usr/bin/numactl", "usr/bin/strip"):
        for library in image.library_names(Path("/") / program):
            path = Path(library)
            assert str(path.parent.resolve() / path.name).lstrip("/") in found


def words(monkeypatch: pytest.MonkeyPatch, folder: Path, seed: int = 7) -> list[str]:
    for name in ("libtierd-lab.so", "libneoprof-model.so"):
        (folder / name).touch()
    monkeypatch.setattr(plugin, "library_path", lambda kind: folder / f"libneoprof-{kind}.so")
    monkeypatch.setattr(sealed, "find_qemu", lambda: Path("/usr/bin/qemu-system-x86_64"))
    return sealed.command(Machine.load("bench"), KERNEL, folder / "image", folder, seed)


def test_nothing_reaches_the_machine_from_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = words(monkeypatch, tmp_path)
    devices = [command[i + 1] for i, word in enumerate(command) if word == "-device"]
    assert devices == ["ivshmem-plain,memdev=window"]
    backends = [command[i + 1] for i, word in enumerate(command) if word == "-chardev"]
    assert [backend.split(",")[0] for backend in backends] == ["file", "file"]
    assert "-nodefaults" in command
    assert not {"-net", "-nic", "-netdev", "-fsdev", "-drive", "-monitor", "-qmp"} & set(command)


def test_clock_and_random_numbers_are_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = words(monkeypatch, tmp_path)
    value = {word: command[i + 1] for i, word in enumerate(command[:-1])}
    assert value["-seed"] == "7"
    assert value["-rtc"] == f"base={sealed.EPOCH},clock=vm"
    assert value["-icount"] == "shift=0,sleep=off"
    assert value["-accel"].startswith("tcg,thread=single,tb-size=")
    assert value["-smp"] == "1"
    assert "nokaslr" in value["-append"].split()
    other = words(monkeypatch, tmp_path, seed=8)
    assert [(a, b) for a, b in zip(command, other, strict=True) if a != b] == [("7", "8")]


def test_a_machine_on_the_hosts_clock_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not count instructions"):
        sealed.command(Machine.load("dram-cxl"), KERNEL, tmp_path, tmp_path, 1)


def test_parts_of_the_parcel_lie_apart_and_behind_the_plugins() -> None:
    at = plugin.WINDOW_BYTES
    for begin, room in sorted(PARTS.values()):
        assert begin >= at
        at = begin + room
    assert at <= WINDOW_BYTES
    assert WINDOW_BYTES & (WINDOW_BYTES - 1) == 0


def test_what_is_put_into_the_parcel_is_there_for_the_other_side(tmp_path: Path) -> None:
    plugin.make_window(tmp_path, WINDOW_BYTES)
    ours, theirs = Parcel(tmp_path / plugin.WINDOW), Parcel(tmp_path / plugin.WINDOW)
    assert theirs.get("request") == b""
    ours.put("request", b"first, and longer")
    ours.put("request", b"second")
    assert theirs.get("request") == b"second"
    begin, room = PARTS["request"]
    ours.put("request", bytes(room - 8))
    assert theirs.get("counts") == b""
    with pytest.raises(ValueError, match="do not fit"):
        ours.put("request", bytes(room - 7))
    with (tmp_path / plugin.WINDOW).open("r+b") as file:
        file.seek(begin)
        file.write(b"\xff" * 8)
    with pytest.raises(ValueError, match="says that it has"):
        theirs.get("request")


def test_the_oracle_gets_requests_by_virtual_page() -> None:
    frames = np.array([[30, 10, 20], [2, 0, 1]], "<u8").tobytes()
    reads, writes = np.array([5, 6, 7], np.uint32), np.array([0, 1, 2], np.uint32)
    counts = Counts(0, 0, "virtual", reads, writes, {}, {}, 0, ())
    told = np.frombuffer(requests_of_pages(frames, counts), "<u8").reshape(2, -1)
    assert told.tolist() == [[10, 20, 30], [5, 7, 9]]


def test_seeds_are_spread_over_the_beat() -> None:
    phases = sorted(phase_s(seed) for seed in range(1, 6))
    assert phases[0] == phase_s(1) == 0
    gaps = np.diff([*phases, 1.0])
    assert gaps.max() < 0.3
    assert gaps.min() > 0.1


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_guests_service_has_the_variants_settings_beside_its_own(
    tmp_path: Path, variant: str
) -> None:
    settings = VARIANTS[variant].toml
    Tierd("neoprof", Given(tmp_path, settings)).configure(tmp_path / "tierd.toml")
    found = load(tmp_path / "tierd.toml")
    assert found.sources.order == ("neoprof",)
    assert not found.metrics.enabled
    assert found.policy == loads(settings).policy


class SplitRecord(sealed.Sealed):
    """A machine without QEMU, whose events are written by the test."""

    class Process:
        status: int | None = None

        def last_words(self) -> Iterator[tuple[str, bytes]]:
            yield "stderr", b"qemu: it said so\n"

    def __init__(self, folder: Path) -> None:
        super().__init__(Machine.load("bench"), folder)
        self.process = SplitRecord.Process()
        self._process = self.process  # type: ignore[assignment]


def test_events_are_taken_line_by_line(tmp_path: Path) -> None:
    machine, seen = SplitRecord(tmp_path), list[dict[str, Any]]()
    file = tmp_path / sealed.EVENTS

    def take(event: dict[str, Any]) -> bool:
        seen.append(event)
        return event["event"] == "done"

    file.write_text('noise\n{"event": "booted"}\n{"event": "do')
    with pytest.raises(sealed.SealedError, match="has not ended in time"):
        machine.follow(take, time.monotonic() - 1)
    assert seen == [{"event": "booted"}]
    file.write_text(file.read_text() + 'ne"}\n')
    machine.follow(take, time.monotonic() + 60)
    assert seen == [{"event": "booted"}, {"event": "done"}]


def test_a_machine_that_ended_early_says_its_last_words(tmp_path: Path) -> None:
    machine = SplitRecord(tmp_path)
    (tmp_path / sealed.CONSOLE).write_text("Kernel panic - not syncing\n")
    (tmp_path / sealed.EVENTS).write_text(json.dumps({"event": "booted"}) + "\n")
    machine.process.status = 0
    with pytest.raises(sealed.SealedError) as caught:
        machine.follow(lambda _: False, time.monotonic() + 60)
    assert "Kernel panic" in caught.value.message
    assert "it said so" in caught.value.message


def test_what_was_built_in_the_tree_is_not_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where packages of it were built, there is another description, which lists sources."""
    told = tmp_path / "tierd.egg-info"
    told.mkdir()
    (told / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: tierd\nVersion: 0.1.0\n")
    (told / "SOURCES.txt").write_text("README.md\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert [str(file) for file in metadata.files("tierd") or ()] == ["README.md"]
    listed = {Path(str(file)).name for file in image._distribution("tierd").files or ()}
    assert any(name.endswith((".pth", "__init__.py")) for name in listed)
    with pytest.raises(metadata.PackageNotFoundError):
        image._distribution("no-such-package")
