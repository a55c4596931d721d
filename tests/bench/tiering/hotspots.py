# SPDX-License-Identifier: Apache-2.0
"""Runs a cell and says where its instructions went: every one of the region, by function.

Counted is each block that the machine executed (fpga/sim/plugin/profile.h), by whose turn it was.
A function of the kernel is that of whom it interrupted or works for; kernel threads have the
last process that ran. What has no symbol shows as its file. The cell goes by as it does without,
but for its folder's name in memory and QEMU's time, which is about twice as long.

usage: hotspots.py --workload pagerank --method tierd-neoprof [--scale 1] [--owner daemon]
    [--top 40] [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plan import LENGTH, METHODS, scaled
from runner import SEED, Runner, end_on_sigterm

from tierd_lab import Machine
from workloads import WORKLOADS

OWNERS: Final = ("workload", "daemon", "kernel", "other")
"""In the file's order; `kernel` has the turns of nobody."""
COUNTED: Final = tuple(method for method in METHODS if method != "oracle")
"""The oracle would need an earlier run's counts, and moves nothing in the region."""
KERNEL: Final = 1 << 63
UNKNOWN: Final = "?"


@dataclass(frozen=True, slots=True)
class Function:
    """A function, or where it could not be told, a file or nothing."""

    file: str
    name: str


class Names:
    """Sorted symbols of one file, or of the kernel.

    Args:
        symbols: addresses and names, in any order.
    """

    def __init__(self, symbols: Iterable[tuple[int, str]]) -> None:
        known = sorted(symbols)
        self._starts = [address for address, _ in known]
        self._names = [name for _, name in known]

    def of(self, address: int) -> str:
        """The name of the symbol at or before the address; UNKNOWN before the first."""
        at = bisect_right(self._starts, address)
        return self._names[at - 1] if at else UNKNOWN


def kernel_names(lines: Iterable[str]) -> Names:
    """Of lines of /proc/kallsyms."""
    words = (line.split() for line in lines)
    return Names((int(word[0], 16), " ".join(word[2:])) for word in words)


def file_names(path: Path) -> Names:
    """Functions of an ELF file by `nm`; those that it exports where it is stripped."""
    found: dict[int, str] = {}
    for flags in (["-D"], []):
        said = subprocess.run(
            ["nm", "--defined-only", *flags, path], capture_output=True, text=True, check=False
        )
        for line in said.stdout.splitlines():
            address, kind, name = line.split(maxsplit=2)
            if kind in "tTwWi":
                found[int(address, 16)] = name
    return Names(found.items())


def loads(path: Path) -> list[tuple[int, int, int]]:
    """Offset in the file, virtual address and size of what an ELF file has loaded (readelf -lW)."""
    said = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=False)
    words = (line.split() for line in said.stdout.splitlines() if line.lstrip().startswith("LOAD"))
    return [(int(word[1], 16), int(word[2], 16), int(word[4], 16)) for word in words]


class Maps:
    """Executable mappings of the daemon's processes.

    Args:
        lines: of /proc/PID/maps.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._maps: list[tuple[int, int, int, str]] = []
        for line in lines:
            words = line.split(maxsplit=5)
            begin, end = (int(word, 16) for word in words[0].split("-"))
            path = words[5] if len(words) == 6 else "[anonymous]"
            self._maps.append((begin, end, int(words[2], 16), path))
        self._names: dict[str, tuple[Names, list[tuple[int, int, int]]]] = {}

    def of(self, address: int) -> Function:
        """The function at a virtual address of the daemon."""
        for begin, end, offset, path in self._maps:
            if begin <= address < end:
                return Function(Path(path).name, self._name(path, address - begin + offset))
        return Function(UNKNOWN, UNKNOWN)

    def _name(self, path: str, offset: int) -> str:
        if not path.startswith("/"):
            return path
        if path not in self._names:
            self._names[path] = file_names(Path(path)), loads(Path(path))
        names, segments = self._names[path]
        for start, address, size in segments:
            if start <= offset < start + size:
                return names.of(offset - start + address)
        return UNKNOWN


def blocks(text: str) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Address, instructions and executions by owner of each line of the plugin's file.

    Raises:
        ValueError: blocks were dropped, so that the counts are not whole.
    """
    for line in text.splitlines():
        word = line.split()
        if word[0] == "dropped":
            if int(word[1]):
                raise ValueError(f"{word[1]} blocks were not counted: out of memory")
            continue
        yield int(word[0], 16), int(word[1]), tuple(int(each) for each in word[2:])


def by_function(text: str, symbols: bytes) -> dict[str, Counter[Function]]:
    """Instructions by function: of `daemon` and `kernel`, each with its own.

    Args:
        text: the plugin's file.
        symbols: what the guest told (guest/symbols.py).

    Returns:
        By owner. Of the workload's own instructions only the sum: `workload` has one entry.
    """
    told = json.loads(zlib.decompress(symbols))
    kernel, maps = kernel_names(told["kernel"]), Maps(told["maps"])
    found: dict[str, Counter[Function]] = {owner: Counter() for owner in OWNERS}
    for address, size, executed in blocks(text):
        if address >= KERNEL:
            found["kernel"][Function("kernel", kernel.of(address))] += size * sum(executed)
            continue
        for owner, times in zip(OWNERS, executed, strict=True):
            if times:
                where = maps.of(address) if owner == "daemon" else Function("", owner)
                found[owner][where] += size * times
    return found


def by_file(functions: Mapping[Function, int]) -> Counter[str]:
    """Instructions by file."""
    found: Counter[str] = Counter()
    for function, count in functions.items():
        found[function.file] += count
    return found


def show(found: Mapping[str, Counter[Function]], owner: str, top: int) -> None:
    """Print a table."""
    every = sum(sum(counts.values()) for counts in found.values())
    own = sum(found[owner].values())
    print(f"{own / 1e6:.1f} of {every / 1e6:.1f} million instructions are of {owner}")
    for file, count in by_file(found[owner]).most_common(12):
        print(f"{count / 1e6:9.2f} M {count / own:6.1%}  {file}")
    print()
    for function, count in found[owner].most_common(top):
        print(f"{count / 1e6:9.2f} M {count / own:6.1%}  {function.name} ({function.file})")


def main() -> int:
    """0 if the cell ran."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--method", choices=COUNTED, required=True)
    parser.add_argument("--owner", choices=("daemon", "kernel"), default="daemon")
    parser.add_argument("--top", type=int, default=40, help="functions to show")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--scale", type=float, default=LENGTH, help="of the work")
    parser.add_argument("--json", action="store_true", help="all functions of all owners")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tierd-hotspots-") as folder:
        with Runner(Machine.load("bench")) as runner:
            runner.profile = Path(folder) / "blocks"
            workload = scaled(WORKLOADS[args.workload], args.scale)
            cell = runner.run(workload, args.method, seed=args.seed)
        if cell.seconds is None:
            print(f"the cell failed: {cell.why}", file=sys.stderr)
            return 1
        text = runner.profile.read_text()
        found = by_function(text, runner.profile.with_suffix(".symbols").read_bytes())
    print(f"{args.workload} / {args.method}: {cell.seconds:.3f} modelled seconds", file=sys.stderr)
    if args.json:
        rows = [
            {"owner": owner, "file": function.file, "name": function.name, "instructions": count}
            for owner, counts in found.items()
            for function, count in counts.most_common()
        ]
        print(json.dumps(rows, indent=1))
    else:
        show(found, args.owner, args.top)
    return 0


if __name__ == "__main__":
    sys.exit(main())
