# SPDX-License-Identifier: Apache-2.0
"""What is read of the host: headers, tracepoints, CPUs, ranges."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.errors import UnavailableError
from tierd.sources.ebpf import files, host
from tierd.sources.ebpf.host import online_cpus, possible_cpus
from tierd.sources.ebpf.table import Watched
from tierd.sources.migrations import _OFFSETS
from tierd.topology.node_meminfo import read_vmstat

FORMAT_6_12 = """\
name: mm_migrate_pages
ID: 713
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:unsigned long succeeded;	offset:8;	size:8;	signed:0;
	field:unsigned long failed;	offset:16;	size:8;	signed:0;
	field:unsigned long thp_succeeded;	offset:24;	size:8;	signed:0;
	field:unsigned long thp_failed;	offset:32;	size:8;	signed:0;
	field:unsigned long thp_split;	offset:40;	size:8;	signed:0;
	field:unsigned long large_folio_split;	offset:48;	size:8;	signed:0;
	field:enum migrate_mode mode;	offset:56;	size:4;	signed:0;
	field:int reason;	offset:60;	size:4;	signed:1;

print fmt: "nr_succeeded=%lu mode=%s reason=%s", REC->succeeded, \
__print_symbolic(REC->mode, {0, "MIGRATE_ASYNC"}, {1, "MIGRATE_SYNC_LIGHT"}), \
__print_symbolic(REC->reason, {0, "compaction"}, {3, "syscall_or_cpuset"}, \
{5, "numa_misplaced"}, {8, "demotion"}, {9, "damon"})
"""


def test_tracepoint_fields_and_symbols():
    point = host.parse_format(FORMAT_6_12)
    assert point.id == 713
    assert point.fields["succeeded"] == (8, 8)
    assert point.fields["reason"] == (60, 4)
    assert point.symbols("reason")[8] == "demotion"
    assert point.symbols("mode") == {0: "MIGRATE_ASYNC", 1: "MIGRATE_SYNC_LIGHT"}
    assert point.symbols("succeeded") == {}


def test_fields_that_the_program_reads_are_in_this_order():
    """The enum of ebpf/migrations.bpf.c and the offsets written into `config`."""
    source = (files.find_source("migrations") or Path()).read_text()
    line = next(line for line in source.splitlines() if line.startswith("enum {"))
    names = [word.strip() for word in line.removeprefix("enum {").removesuffix("};").split(",")]
    said = {"addr": "ADDRESS", "nid": "NODE"}
    assert names == [said.get(field, field.upper()) for _, field in _OFFSETS]


def test_a_tracepoint_that_is_not_there_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "ROOTS", (tmp_path / "none",))
    with pytest.raises(UnavailableError, match="tracefs is not mounted"):
        host.find_tracepoint("migrate:mm_migrate_pages")
    (tmp_path / "events").mkdir()
    monkeypatch.setattr(host, "ROOTS", (tmp_path,))
    with pytest.raises(UnavailableError, match="no tracepoint"):
        host.find_tracepoint("migrate:mm_migrate_pages")


def test_headers_of_the_running_kernel_come_first(tmp_path):
    assert files.find_headers(tmp_path, "6.1.0") is None
    split = tmp_path / "usr/src/linux-headers-6.12.9-amd64"
    common = tmp_path / "usr/src/linux-headers-6.12.9-common"
    (common / "include/linux").mkdir(parents=True)
    (common / "include/linux/kconfig.h").touch()
    split.mkdir(parents=True)
    foreign = files.find_headers(tmp_path, "6.1.0")
    if os.uname().machine == "x86_64":
        assert foreign is not None and not foreign.native
        assert foreign.release == "6.12.9-amd64"
        assert foreign.environment["BCC_KERNEL_SOURCE"] == str(common)
        assert f"-I{split}/include" in foreign.flags
    own = tmp_path / "lib/modules/6.1.0/build/include/generated"
    own.mkdir(parents=True)
    (own / "autoconf.h").touch()
    native = files.find_headers(tmp_path, "6.1.0")
    assert native is not None and native.native and native.environment == {}


def test_bcc_is_not_taken_for_the_package_of_that_name(tmp_path, monkeypatch):
    """PyPI's bcc has nothing to do with BPF; the distribution's Python is asked then."""
    (tmp_path / "bcc").mkdir()
    (tmp_path / "bcc/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bcc", raising=False)
    system = tmp_path / "usr/bin/python3"
    assert files.find_bcc_python(system) is None
    package = tmp_path / "usr/lib/python3/dist-packages/bcc"
    package.mkdir(parents=True)
    (package / "table.py").touch()
    assert files.find_bcc_python(system) == system
    (tmp_path / "bcc/table.py").touch()
    assert files.find_bcc_python(system) == Path(sys.executable)


def test_cpu_lists(tmp_path):
    (tmp_path / "online").write_text("0,2-3\n")
    (tmp_path / "possible").write_text("0-7\n")
    assert online_cpus(tmp_path) == [0, 2, 3]
    assert possible_cpus(tmp_path) == 8
    assert online_cpus(tmp_path / "none") and possible_cpus(tmp_path / "none") >= 1


ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=6)


def disjoint(pairs: list[tuple[int, int]]) -> tuple[WatchedRange, ...]:
    made, at = [], 0
    for start, length in sorted(pairs):
        first = max(at, start)
        made.append(WatchedRange(first, first + length))
        at = first + length + 1
    return tuple(made)


@given(ranges, ranges, st.lists(st.tuples(st.sampled_from([3, 4, 9]), st.integers(0, 90))))
def test_inside_is_what_the_ranges_say(first, second, asked):
    targets = [WatchedTarget(3, 30, disjoint(first)), WatchedTarget(4, 40, disjoint(second))]
    known = {(t.target, page) for t in targets for r in t.ranges for page in range(r.start, r.end)}
    keys = np.array([target << 48 | page for target, page in asked], np.uint64)
    assert Watched(targets).inside(keys).tolist() == [each in known for each in asked]


def test_samples_are_keyed_by_their_process():
    watched = Watched(
        [WatchedTarget(7, 500, (WatchedRange(0, 9),)), WatchedTarget(2, 90, (WatchedRange(0, 9),))]
    )
    pid = np.array([500, 90, 91, 500], np.uint32)
    assert watched.known(pid).tolist() == [True, True, False, True]
    address = np.array([0x5123, 0x6000, 0x7000], np.uint64)
    keys = watched.keys(pid[[0, 1, 3]], address)
    assert keys.tolist() == [7 << 48 | 5, 2 << 48 | 6, 7 << 48 | 7]


def test_a_target_without_ranges_is_not_watched():
    assert Watched([WatchedTarget(7, 500, ())]).targets == {}
    assert not Watched([]).known(np.array([1], np.uint32)).any()


def test_vmstat_is_read(tmp_path):
    (tmp_path / "vmstat").write_text("nr_free_pages 12\npgmigrate_success 7\nodd\n")
    assert read_vmstat(tmp_path / "vmstat") == {"nr_free_pages": 12, "pgmigrate_success": 7}


def test_a_cpu_that_went_and_came_back_has_another_mark(tmp_path):
    (tmp_path / "online").write_text("0-1\n")
    for name in ("cpu0/topology", "cpu1/topology"):
        (tmp_path / name).mkdir(parents=True)
    before = host.running_cpus(tmp_path)
    assert host.running_cpus(tmp_path) == before and set(before) == {0, 1}
    (tmp_path / "cpu1/topology").rename(tmp_path / "old")
    (tmp_path / "cpu1/topology").mkdir()
    after = host.running_cpus(tmp_path)
    assert after[0] == before[0] and after[1] != before[1]
    (tmp_path / "cpu1/topology").rmdir()
    assert host.running_cpus(tmp_path)[1] == 0
