# SPDX-License-Identifier: Apache-2.0
"""Perf records: recorded ones of page faults, and made ones of everything else.

The recordings are a ring buffer's bytes from a kernel (6.18) while a program touched
64, 340 and 32 pages one after the other; the second ring was too small.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.sources.ebpf.perf import Sample, decode, is_store, sample_dtype

RECORDED = Path(__file__).with_name("recorded")
PLAIN = Sample.TID | Sample.TIME | Sample.ADDR


def test_recorded_faults_are_consecutive_pages():
    records = decode((RECORDED / "faults.bin").read_bytes(), sample_dtype(PLAIN))
    pages = records.samples["addr"][:64] >> np.uint64(12)
    assert pages.tolist() == list(range(0x7F76F41C0, 0x7F76F41C0 + 64))
    assert set(records.samples["pid"].tolist()) == {1454}
    assert (np.diff(records.samples["time"].astype(np.int64)) > 0).all()
    assert (records.lost, records.throttled, records.malformed) == (0, 0, 0)


def test_recorded_loss_is_between_the_samples():
    """Samples and what the kernel says it dropped add up to the faults there were."""
    records = decode((RECORDED / "faults-lost.bin").read_bytes(), sample_dtype(PLAIN))
    assert records.lost == 174
    assert len(records.samples) + records.lost == 341  # 340 pages, and one of the allocator
    assert records.malformed == 0


def test_recorded_samples_with_physical_address_and_source():
    sample = PLAIN | Sample.DATA_SRC | Sample.PHYS_ADDR
    records = decode((RECORDED / "faults-physical.bin").read_bytes(), sample_dtype(sample))
    assert len(records.samples) == 32
    pages = records.samples["addr"] >> np.uint64(12)
    assert (np.diff(pages.astype(np.int64)) == 1).all()
    # A page that is just faulting has no frame yet, and software no data source.
    assert not records.samples["phys_addr"].any()
    assert not is_store(records.samples["data_src"]).any()


def sample_bytes(pid: int, addr: int) -> bytes:
    return struct.pack("=IHHIIQQ", 9, 2, 32, pid, pid, 5, addr)


LOST = struct.pack("=IHHQQ", 2, 0, 24, 1, 1000)
THROTTLE = struct.pack("=IHHQQQ", 5, 0, 32, 5, 1, 1)
UNTHROTTLE = struct.pack("=IHHQQQ", 6, 0, 32, 5, 1, 1)
LOST_SAMPLES = struct.pack("=IHHQ", 13, 0, 16, 7)


@given(st.lists(st.sampled_from("sltuo"), max_size=60))
def test_any_order_of_records_is_decoded(kinds):
    data, number = b"", 0
    for kind in kinds:
        if kind == "s":
            data += sample_bytes(1, number)
            number += 1
        else:
            data += {"l": LOST, "t": THROTTLE, "u": UNTHROTTLE, "o": LOST_SAMPLES}[kind]
    records = decode(data, sample_dtype(PLAIN))
    assert records.samples["addr"].tolist() == list(range(number))
    assert records.lost == 1000 * kinds.count("l") + 7 * kinds.count("o")
    assert records.throttled == kinds.count("t")
    assert records.malformed == 0


@given(st.binary(max_size=300))
def test_any_bytes_end_in_records_and_a_rest(data):
    records = decode(data, sample_dtype(PLAIN))
    assert 0 <= records.malformed <= len(data)


def test_a_record_of_length_zero_ends_the_decoding():
    data = sample_bytes(1, 1) + struct.pack("=IHHQ", 2, 0, 0, 1)
    records = decode(data, sample_dtype(PLAIN))
    assert len(records.samples) == 1 and records.malformed == 16


@pytest.mark.parametrize(
    "sample, names, size",
    [
        (PLAIN, ("pid", "tid", "time", "addr"), 32),
        (PLAIN | Sample.PHYS_ADDR, ("pid", "tid", "time", "addr", "phys_addr"), 40),
        (
            PLAIN | Sample.PHYS_ADDR | Sample.DATA_SRC | Sample.IP | Sample.CPU | Sample.PERIOD,
            (
                "ip",
                "pid",
                "tid",
                "time",
                "addr",
                "cpu",
                "cpu_spare",
                "period",
                "data_src",
                "phys_addr",
            ),
            72,
        ),
    ],
)
def test_sample_fields_stand_in_the_kernels_order(sample, names, size):
    dtype = sample_dtype(sample)
    assert dtype.names is not None
    assert dtype.names[3:] == names
    assert dtype.itemsize == size


def test_stores_are_told_by_the_data_source():
    """PERF_MEM_OP_LOAD is 2, _STORE 4, _NA 1, in the lowest five bits (perf_event.h)."""
    sources = np.array([0x2, 0x4, 0x1, 0x5080144, 0x5080142], np.uint64)
    assert is_store(sources).tolist() == [False, True, False, True, False]
