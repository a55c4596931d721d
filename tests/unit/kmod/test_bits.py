# SPDX-License-Identifier: Apache-2.0
"""`kmod/bits.h` against a model that looks at one page at a time."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

HEADER = Path(__file__).resolve().parents[3] / "kmod/bits.h"
SOURCE = f"""
#include "{HEADER}"
__u64 age(__u8 *h, __u8 a, __u8 p, __u8 o) {{ return tierd_history_age(h, a, p, o); }}
__u8 seen(__u64 h, unsigned int least) {{
	return tierd_history_reach(tierd_history_count(h), tierd_history_least(least));
}}
unsigned int steady(__u64 h) {{ return tierd_marks(tierd_history_steady(h)); }}
unsigned int silent(__u64 h) {{ return tierd_marks(tierd_history_steady(h) & ~h); }}
"""
BYTE = st.integers(0, 255)


@pytest.fixture(scope="module")
def bits(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The header as a library."""
    library = tmp_path_factory.mktemp("bits") / "bits.so"
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-x", "c", "-"]
    subprocess.run([*command, "-o", str(library)], input=SOURCE, text=True, check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.age.restype = ctypes.c_uint64
    loaded.seen.restype = ctypes.c_uint8
    loaded.seen.argtypes = [ctypes.c_uint64, ctypes.c_uint]
    loaded.steady.argtypes = loaded.silent.argtypes = [ctypes.c_uint64]
    return loaded


@settings(deadline=None)
@given(histories=st.binary(min_size=8, max_size=8), accessed=BYTE, present=BYTE, ours=BYTE)
def test_ageing_is_that_of_each_page_alone(
    bits: ctypes.CDLL, histories: bytes, accessed: int, present: int, ours: int
) -> None:
    wanted, returned = bytearray(histories), bytearray(8)
    for page in range(8):
        if ours >> page & 1:
            aged = histories[page] >> 1 | (0x80 if accessed >> page & 1 else 0)
            wanted[page] = returned[page] = aged if present >> page & 1 else 0
    memory = (ctypes.c_uint8 * 8).from_buffer_copy(histories)
    result = bits.age(memory, accessed, present, ours)
    assert (bytes(memory), result) == (bytes(wanted), int.from_bytes(returned, "little"))


@settings(deadline=None)
@given(histories=st.binary(min_size=8, max_size=8), least=st.integers(1, 8))
def test_seen_counts_the_bits_of_each_page(bits: ctypes.CDLL, histories: bytes, least: int) -> None:
    wanted = sum(1 << page for page in range(8) if histories[page].bit_count() >= least)
    assert bits.seen(int.from_bytes(histories, "little"), least) == wanted


@settings(deadline=None)
@given(histories=st.lists(st.sampled_from([*range(256), 0x70, 0xF0]), min_size=8, max_size=8))
def test_silent_is_what_the_three_scans_before_found_and_this_one_did_not(
    bits: ctypes.CDLL, histories: list[int]
) -> None:
    word = int.from_bytes(bytes(histories), "little")
    steady = [history for history in histories if history & 0x70 == 0x70]
    assert bits.steady(word) == len(steady)
    assert bits.silent(word) == sum(history < 0x80 for history in steady)
