# SPDX-License-Identifier: Apache-2.0
"""QEMU's options for watching a machine's memory traffic: plugin, window, instruction counting."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from tierd.core.errors import UnavailableError
from tierd_lab.cards import CardSpec, decoders
from tierd_lab.machine import Machine
from tierd_lab.ram import node_ranges

WINDOW: Final = "window"
"""File in the run's folder that guest and host share."""
DUMP: Final = "traffic"
"""Start of the names of the files in that folder which a dump writes."""
PROFILE: Final = "profile"
"""File there that a dump of a machine writes whose blocks are counted."""
WINDOW_BYTES: Final = 128 * 1024
"""A PCI BAR is a power of 2: the next above NPW_BYTES."""
CYCLES_PER_100US: Final = 100
"""The cards' memory clock in the lab: 1 MHz, so two million requests a guest second at most.
A TCG guest makes some hundred thousand, so the state monitor's share means something, and the
RTL, which simulates one to two million cycles a second, keeps up. LAB_CLOCK of fpga/Makefile."""


def is_watched(machine: Machine) -> bool:
    """True if the machine needs the plugin."""
    return bool(machine.cards) or machine.cache is not None or machine.time is not None


def library_path(kind: Literal["rtl", "model", "model-table"]) -> Path:
    """Where a card's library is built; imported late: it needs cffi."""
    from neoprof.card import library_path as found

    return found(kind)


def _built(path: Path, target: str) -> Path:
    if not path.is_file():
        raise UnavailableError(
            f"the lab's {path.name} is not built ({path} is missing)",
            hint=f"make -C fpga {target}",
        )
    return path


def plugin_path() -> Path:
    """The plugin.

    Raises:
        UnavailableError: it is not built; the message says how.
    """
    return _built(library_path("model").with_name("libtierd-lab.so"), "lab")


def card_library(kind: str) -> Path:
    """The library that simulates a card of a kind in the lab.

    Raises:
        UnavailableError: it is not built; the message says how.
    """
    if kind == "rtl":
        return _built(library_path("rtl").with_name("libneoprof-rtl-lab.so"), "lab-rtl")
    if kind == "table":
        return _built(library_path("model-table"), "lab")
    return _built(library_path("model"), "lab")


def make_window(folder: Path, size_bytes: int = WINDOW_BYTES) -> None:
    """Make the window's file, empty, in the run's folder; its size is a power of 2."""
    with (folder / WINDOW).open("wb") as file:
        file.truncate(size_bytes)


def plugin_options(
    machine: Machine,
    folder: Path,
    window_bytes: int = WINDOW_BYTES,
    *,
    profile: bool = False,
) -> list[str]:
    """QEMU's options; none for a machine that nobody watches.

    Args:
        machine, folder: which, and where its files lie.
        window_bytes: size of the window's file.
        profile: count executed blocks (fpga/sim/plugin/profile.h), in a machine with a model of
            time.

    Raises:
        UnavailableError: a library is not built.
    """
    if not is_watched(machine):
        return []
    window = folder / WINDOW
    words = [str(plugin_path()), f"window={window}", f"dump={folder / DUMP}"]
    if machine.icount is not None:
        words.append(f"icount={machine.icount}")
    if machine.cache is not None:
        cache = machine.cache
        words.append(f"cache={cache.size_bytes}:{cache.ways}:{cache.line_bytes}")
    sizes = [node.size_bytes for node in machine.nodes]
    for number, ranges in enumerate(node_ranges(sizes)):
        words += [f"node={number}:{piece.base:#x}:{piece.size:#x}" for piece in ranges]
    words += _time_words(machine)
    words += [f"profile={folder / PROFILE}"] if profile else []
    for card in machine.cards:
        words += _card_words(card, sizes)
    escaped = str(window).replace(",", ",,")
    return [
        "-object",
        f"memory-backend-file,id=window,share=on,mem-path={escaped},size={window_bytes}",
        "-device",
        "ivshmem-plain,memdev=window",
        "-plugin",
        ",".join(word.replace(",", ",,") for word in words),
    ]


def _time_words(machine: Machine) -> list[str]:
    if machine.time is None:
        return []
    words = [f"time={machine.time.instruction_ps}:{machine.time.overlap}"]
    words += [f"pace={machine.time.behind_us}"] if machine.time.follow else []
    home = next(number for number, node in enumerate(machine.nodes) if node.cpus)
    for number, node in enumerate(machine.nodes):
        latency_ps = node.latency_ns[home] * 1000
        words.append(f"speed={number}:{latency_ps}:{node.bandwidth_bytes_per_s[home] // 10**6}")
    return words


def _card_words(card: CardSpec, sizes: list[int]) -> list[str]:
    words = [f"card={card_library(card.kind)}", f"clock={CYCLES_PER_100US}"]
    words += [f"width={card.log2_width}"] if card.log2_width else []
    words += [f"ring={card.ring}"] if card.ring else []
    return words + [f"decoder={piece.base:#x}:{piece.size:#x}:0" for piece in decoders(card, sizes)]
