# SPDX-License-Identifier: Apache-2.0
"""From executed blocks to functions."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests/bench/tiering"))

from hotspots import Function, Maps, Names, blocks, by_file, by_function

KERNEL = [
    "ffffffff81000000 T _stext",
    "ffffffff81000100 t do_something\t[tierd]",
    "ffffffff81000200 W weak",
]


def symbols(maps: list[str]) -> bytes:
    return zlib.compress(json.dumps({"kernel": KERNEL, "maps": maps}).encode())


def test_the_name_is_that_of_the_symbol_before() -> None:
    names = Names([(20, "b"), (10, "a")])
    assert [names.of(at) for at in (9, 10, 19, 20, 1000)] == ["?", "a", "a", "b", "b"]
    assert Names([]).of(5) == "?"


def test_a_function_of_a_mapped_library_is_found(tmp_path: Path) -> None:
    """In a file whose code does not lie where it is in the file."""
    source = tmp_path / "many.c"
    source.write_text("int first(int x) { return x + 1; }\nint second(int x) { return x * 3; }\n")
    library = tmp_path / "libmany.so"
    flags = ["-shared", "-fPIC", "-nostdlib", "-Wl,-z,separate-code,--section-start=.text=0x7000"]
    subprocess.run(["cc", *flags, source, "-o", library], check=True)
    said = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    at = {line.split()[2]: int(line.split()[0], 16) for line in said.splitlines()}
    loads = subprocess.run(["readelf", "-lW", library], capture_output=True, text=True, check=True)
    offset, address = next(
        (int(line.split()[1], 16), int(line.split()[2], 16))
        for line in loads.stdout.splitlines()
        if "LOAD" in line and " E " in line.replace("R E", " E ")
    )
    begin = 0x7F0000000000
    maps = Maps([f"{begin:x}-{begin + 0x1000:x} r-xp {offset:08x} fe:00 12   {library}"])
    for name in ("first", "second"):
        assert maps.of(begin + at[name] - address) == Function("libmany.so", name)
    assert maps.of(begin + 0x1000) == Function("?", "?")


def test_what_has_no_file_shows_as_what_it_is() -> None:
    maps = Maps(["1000-2000 r-xp 00000000 00:00 0 [vdso]", "3000-4000 r-xp 00000000 00:00 0"])
    assert maps.of(0x1FFF) == Function("[vdso]", "[vdso]")
    assert maps.of(0x3000) == Function("[anonymous]", "[anonymous]")


def test_instructions_are_summed_by_owner_and_function() -> None:
    text = (
        "ffffffff81000010 4 1 2 3 4\n"  # in the kernel it is nobody's turn
        "ffffffff81000104 2 5 0 0 0\n"
        "1010 10 7 3 0 1\n"
        "1020 1 0 6 0 0\n"
        "dropped 0\n"
    )
    found = by_function(text, symbols(["1000-2000 r-xp 00000000 00:00 0 [vdso]"]))
    assert found["kernel"] == {
        Function("kernel", "_stext"): 40,
        Function("kernel", "do_something [tierd]"): 10,
    }
    assert found["daemon"] == {Function("[vdso]", "[vdso]"): 36}
    assert found["workload"] == {Function("", "workload"): 70}
    assert found["other"] == {Function("", "other"): 10}
    assert by_file(found["kernel"]) == {"kernel": 50}


def test_counts_that_are_not_whole_are_refused() -> None:
    with pytest.raises(ValueError, match="3 blocks were not counted"):
        list(blocks("1010 10 7 3 0 1\ndropped 3\n"))
