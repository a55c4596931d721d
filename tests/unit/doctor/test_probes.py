# SPDX-License-Identifier: Apache-2.0
"""Each probe on a host made of the files it reads."""

from __future__ import annotations

import errno
import gzip
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tierd.core.access import Availability
from tierd.core.errors import UnavailableError
from tierd.doctor import Finding, Group, Host, Status, judge, moving
from tierd.doctor.findings import SOURCES, all_probes, ask_all

MakeHost = Callable[..., Host]
DAMON = "sys/kernel/mm/damon/admin/kdamonds"
PMUS = "sys/bus/event_source/devices"


def ask(host: Host, name: str) -> Finding:
    return ask_all(host, [probe for probe in all_probes() if probe.id == name])[0]


def live(host: Host) -> Host:
    """The files of a fake host, with system calls allowed (the test replaces them)."""
    host.live = True
    return host


def status_of(host: Host, name: str) -> str:
    return ask(host, name).status.value


def test_without_damon_every_part_of_it_says_what_to_enable(fake: MakeHost) -> None:
    host = fake({"boot/config-6.12.1": "CONFIG_NUMA=y\n# CONFIG_DAMON is not set\n"})
    for name, option in (
        ("damon.sysfs", "CONFIG_DAMON_SYSFS"),
        ("damon.vaddr", "CONFIG_DAMON_VADDR"),
        ("damon.paddr", "CONFIG_DAMON_PADDR"),
    ):
        finding = ask(host, name)
        assert finding.status is Status.NO
        assert option in finding.hint


def test_damon_operations_by_an_existing_context(fake: MakeHost) -> None:
    host = fake({f"{DAMON}/0/contexts/0/avail_operations": "paddr\n"})
    assert status_of(host, "damon.paddr") == "yes"
    assert ask(host, "damon.vaddr").reason == "the kernel offers paddr"


def test_damon_operations_by_the_configuration(fake: MakeHost) -> None:
    host = fake({"boot/config-6.12.1": "CONFIG_DAMON_VADDR=y\nCONFIG_DAMON_PADDR=n\n"})
    assert (status_of(host, "damon.vaddr"), status_of(host, "damon.paddr")) == ("yes", "no")


def test_damon_operations_by_a_compressed_configuration(fake: MakeHost) -> None:
    host = fake()
    (host.root / "proc/config.gz").write_bytes(gzip.compress(b"CONFIG_DAMON_VADDR=y\n"))
    assert status_of(host, "damon.vaddr") == "yes"


def test_damon_operations_by_the_symbols(fake: MakeHost) -> None:
    host = fake({"proc/kallsyms": "0 t damon_va_check_accesses\n0 t other\n"})
    assert (status_of(host, "damon.vaddr"), status_of(host, "damon.paddr")) == ("yes", "no")


def test_unknown_damon_operations_are_not_guessed(fake: MakeHost) -> None:
    finding = ask(fake(), "damon.vaddr")
    assert finding.status is Status.UNKNOWN
    assert finding.reason.startswith("could not tell: neither")


def test_the_tracepoint_is_found_in_either_tracefs(fake: MakeHost) -> None:
    assert "not mounted" in ask(fake(), "damon.tracepoint").reason
    for place in ("sys/kernel/debug/tracing", "sys/kernel/tracing"):
        host = fake({f"{place}/events/damon/damon_aggregated/id": "1"})
        assert ask(host, "damon.tracepoint").status is Status.YES


@pytest.mark.parametrize(
    ("files", "status", "part"),
    [
        ({f"{PMUS}/ibs_op/type": "9"}, "yes", "ibs_op"),
        (
            {f"{PMUS}/cpu/events/mem-loads": "event=0xcd", f"{PMUS}/cpu/caps/max_precise": "3"},
            "yes",
            "cpu/mem-loads (MEM_* retired), max_precise 3",
        ),
        ({f"{PMUS}/cpu_core/events/mem-loads": "event=0xcd"}, "yes", "cpu_core/mem-loads"),
        ({f"{PMUS}/arm_spe_0/type": "8"}, "yes", "arm_spe"),
        ({f"{PMUS}/cpu/type": "4"}, "no", "no event with data addresses"),
        ({f"{PMUS}/software/type": "1"}, "no", "virtual machine"),
        ({}, "no", "have none"),
    ],
)
def test_the_pmu_event_that_would_be_used(
    fake: MakeHost, files: dict[str, str], status: str, part: str
) -> None:
    finding = ask(fake(files), "pmu.address")
    assert finding.status == status
    assert part in finding.reason


def test_headers_are_a_build_folder_or_kheaders(fake: MakeHost) -> None:
    assert "linux-headers-6.12.1" in ask(fake(), "bpf.headers").hint
    assert status_of(fake({"sys/kernel/kheaders.tar.xz": ""}), "bpf.headers") == "yes"
    own = fake({"lib/modules/6.12.1/build/include/generated/autoconf.h": ""})
    assert "running kernel's" in ask(own, "bpf.headers").reason


def test_headers_of_another_kernel_serve_and_are_said_to_be(fake: MakeHost) -> None:
    base = "usr/src/linux-headers-6.1.0-9"
    host = fake({f"{base}-amd64/x": "", f"{base}-common/include/linux/kconfig.h": ""})
    found = ask(host, "bpf.headers")
    assert found.status.value == "yes"
    assert "6.1.0-9-amd64" in found.reason
    assert "not for the module" in found.reason


def test_bcc_is_found_where_the_helper_would_find_it(
    fake: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = fake({"usr/lib/python3/dist-packages/bcc/table.py": ""})
    assert status_of(host, "bpf.bcc") == "yes"
    assert status_of(fake(), "bpf.bcc") == "unknown"
    live = Host()
    for found, words in (
        (None, "python3-bpfcc"),
        (Path(sys.executable), "this Python"),
        (Path("/usr/bin/python3"), "runs /usr/bin/python3"),
    ):
        monkeypatch.setattr("tierd.sources.ebpf.files.find_bcc_python", lambda found=found: found)
        told = ask(live, "bpf.bcc")
        assert words in f"{told.reason} {told.hint}"


@pytest.mark.parametrize(
    ("id_", "where"),
    [
        ("bpf.sampling", "tierd.sources.faults.FaultSource"),
        ("bpf.pmu", "tierd.sources.pmu.PmuSource"),
        ("bpf.migrations", "tierd.sources.migrations.MigrationWatch"),
    ],
)
def test_a_source_is_asked_itself(
    fake: MakeHost, monkeypatch: pytest.MonkeyPatch, id_: str, where: str
) -> None:
    class Source:
        def available(self) -> Availability:
            return Availability(False, "because of the test", "mend it")

    monkeypatch.setattr(where, Source)
    told = ask(Host(), id_)
    assert (told.status.value, told.reason, told.hint) == ("no", "because of the test", "mend it")
    assert status_of(fake(), id_) == "unknown"


def test_without_objects_it_says_what_makes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tierd.sources.ebpf.files.find_object", lambda name: None)
    told = ask(Host(), "bpf.prebuilt")
    assert told.reason == "no object of pmu, faults, migrations"
    assert "make -C ebpf" in told.hint


def test_gpus_are_told_of_or_why_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library() -> object:
        raise UnavailableError("the Python package nvidia-ml-py is missing", hint="pip")

    monkeypatch.setattr("tierd_gpu.nvml._library", no_library)
    told = ask(Host(), "gpu.nvml")
    assert (told.status.value, told.hint) == ("no", "pip")
    assert "nvidia-ml-py" in told.reason


def test_the_module_is_loaded_or_installed_or_absent(fake: MakeHost) -> None:
    assert "nor installed" in ask(fake(), "module.loaded").reason
    listed = {"lib/modules/6.12.1/modules.dep": "updates/dkms/tierd.ko.xz: kernel/x.ko\n"}
    assert ask(fake(listed), "module.loaded").hint == "modprobe tierd"
    assert status_of(fake({"sys/module/tierd/version": "1"}), "module.loaded") == "yes"


def test_what_the_module_cannot_do_here_is_said(fake: MakeHost) -> None:
    assert "not loaded" in ask(fake(), "module.abilities").reason
    able = {"sys/module/tierd/parameters/can_flush": "Y"}
    assert status_of(fake(able), "module.abilities") == "yes"
    found = ask(fake({"sys/module/tierd/parameters/can_flush": "N"}), "module.abilities")
    assert found.status.value == "no"
    assert "INVPCID" in found.reason
    found = ask(fake({"sys/module/tierd/parameters/mark_young": "N"}), "module.abilities")
    assert "CONFIG_PAGE_IDLE_FLAG" in found.reason
    found = ask(fake({"sys/module/tierd/parameters/history_full": "7"}), "module.abilities")
    assert "history_bytes" in found.reason


def test_processes_of_virtual_machines_are_named(fake: MakeHost) -> None:
    host = fake({"proc/70/comm": "qemu", "proc/70/fd/.keep": "", "proc/71/comm": "sh"})
    assert status_of(host, "scan.guests") == "yes"
    (host.root / "proc/70/fd/9").symlink_to("anon_inode:kvm-vm")
    found = ask(host, "scan.guests")
    assert (found.status.value, "process 70" in found.reason) == ("no", True)


def test_idle_page_tracking_is_what_the_kernel_has(fake: MakeHost) -> None:
    found = ask(fake({}), "idlepage.kernel")
    assert (found.status.value, found.reason) == ("no", "idle page tracking is not in this kernel")
    assert "CONFIG_IDLE_PAGE_TRACKING" in found.hint
    host = fake({"sys/kernel/mm/page_idle/bitmap": ""})
    assert status_of(host, "idlepage.kernel") == "yes"
    assert status_of(host, "idlepage.files") == "unknown"  # of a captured tree


def test_a_neoprof_card_is_what_the_driver_shows(fake: MakeHost) -> None:
    scanner = fake({"sys/module/tierd/version": "1"})
    assert ask(scanner, "neoprof.card").reason == "its driver is not loaded"
    host = fake({"sys/module/tierd_neoprof/version": "1"})
    assert "found none" in ask(host, "neoprof.card").reason
    host = fake({"sys/class/neoprof/neoprof0/uevent": ""})
    assert ask(host, "neoprof.card").reason == "neoprof0"
    files = {"backend": "window\n", "state": "failed\n", "why": "no answer in 1000 ms\n"}
    host = fake({f"sys/class/neoprof/neoprof0/{name}": text for name, text in files.items()})
    found = ask(host, "neoprof.card")
    assert found.status.value == "no"
    assert found.reason == "neoprof0 (window, failed, no answer in 1000 ms)"


def status_file(mask: int, extra: str = "") -> dict[str, str]:
    return {"proc/self/status": f"Name:\ttierd\nCapEff:\t{mask:016x}\n{extra}"}


def test_each_capability_is_told_by_its_bit(fake: MakeHost) -> None:
    host = fake(status_file(1 << 19 | 1 << 38))
    asked = ("sys_ptrace", "sys_nice", "net_admin", "bpf", "perfmon", "sys_admin")
    shown = {name: status_of(host, f"capability.{name}") for name in asked}
    assert [name for name, status in shown.items() if status == "yes"] == ["sys_ptrace", "perfmon"]


def test_sys_admin_stands_for_bpf_and_perfmon(fake: MakeHost) -> None:
    host = fake(status_file(1 << 21))
    assert status_of(host, "capability.bpf") == "yes"
    assert status_of(host, "capability.net_admin") == "no"


def test_unknown_capabilities_are_not_guessed(fake: MakeHost) -> None:
    assert status_of(fake(), "capability.bpf") == "unknown"


@pytest.mark.parametrize(
    ("level", "mask", "status"), [(3, 0, "no"), (0, 0, "yes"), (-1, 0, "yes"), (3, 1 << 38, "yes")]
)
def test_perf_needs_a_low_limit_or_the_capability(
    fake: MakeHost, level: int, mask: int, status: str
) -> None:
    host = fake({"proc/sys/kernel/perf_event_paranoid": f"{level}\n", **status_file(mask)})
    assert status_of(host, "perf.paranoid") == status


def test_process_events_need_the_connector(fake: MakeHost) -> None:
    assert status_of(fake(), "proc_connector") == "no"
    host = fake({"proc/net/connector": "Name            ID\ncn_proc         1:1\n"})
    assert status_of(host, "proc_connector") == "yes"


def test_memory_of_a_gpu_is_no_second_tier_and_is_named(fake: MakeHost) -> None:
    found = ask(fake(base="gh200"), "tiers")
    assert found.status == "no"
    assert "node 1 is memory of GPU 0009:01:00.0, excluded by topology.gpu_nodes" in found.reason


def test_one_tier_is_not_enough(fake: MakeHost) -> None:
    assert status_of(fake(base="one-node"), "tiers") == "no"


def test_two_tiers_are_named_with_their_sizes(fake: MakeHost) -> None:
    finding = ask(fake(), "tiers")
    assert finding.status is Status.YES
    assert finding.reason == "2 tiers: dram (1006.3 MiB), cxl (1.9 GiB)"


def test_free_memory_is_told_by_tier(fake: MakeHost) -> None:
    total = {
        n: f"Node {n} MemTotal: {4 << 20} kB\nNode {n} MemFree: {1 << 20} kB\n" for n in (0, 1)
    }
    host = fake({f"sys/devices/system/node/node{n}/meminfo": text for n, text in total.items()})
    assert ask(host, "memory.free").reason == "dram 1.0 GiB of 4.0 GiB, cxl 1.0 GiB of 4.0 GiB"


def test_cgroup2_is_found_alone_or_beside_version_1(fake: MakeHost) -> None:
    assert status_of(fake(), "cgroup2") == "no"
    for place in ("unified/", ""):
        host = fake({f"sys/fs/cgroup/{place}cgroup.controllers": "memory cpuset\n"})
        assert status_of(host, "cgroup2") == "yes"


@pytest.mark.parametrize(
    ("text", "status", "part"),
    [
        ("0", "clear", "off"),
        ("1", "conflict", "towards the CPUs"),
        ("2", "conflict", "promotes"),
        ("3", "conflict", "promotes"),
    ],
)
def test_numa_balancing_conflicts_in_both_modes(
    fake: MakeHost, text: str, status: str, part: str
) -> None:
    finding = ask(fake({"proc/sys/kernel/numa_balancing": text}), "conflict.numa_balancing")
    assert finding.status == status
    assert part in finding.reason


@pytest.mark.parametrize(("text", "status"), [("false", "clear"), ("true", "conflict")])
def test_kernel_demotion_conflicts(fake: MakeHost, text: str, status: str) -> None:
    host = fake({"sys/kernel/mm/numa/demotion_enabled": text})
    assert status_of(host, "conflict.demotion") == status


def test_other_movers_are_found_by_name(fake: MakeHost) -> None:
    host = fake({"proc/7/comm": "numad\n", "proc/8/comm": "sshd\n"})
    assert ask(host, "conflict.movers").reason == "running: numad (7)"


def test_a_running_kdamond_conflicts_and_an_idle_one_does_not(fake: MakeHost) -> None:
    host = fake({f"{DAMON}/nr_kdamonds": "1", f"{DAMON}/0/state": "on", f"{DAMON}/0/pid": "42"})
    assert ask(host, "conflict.damon").reason == "running: kdamond 0 (thread 42)"
    host = fake({f"{DAMON}/nr_kdamonds": "1", f"{DAMON}/0/state": "off"})
    assert ask(host, "conflict.damon").status is Status.CLEAR


@pytest.mark.parametrize(
    ("release", "lands"), [("6.10.1", False), ("6.12.95", True), ("7.2.13", True), ("7.3.4", False)]
)
def test_schemes_that_migrate_conflict_and_old_ones_miss_their_node(
    fake: MakeHost, release: str, lands: bool
) -> None:
    schemes = f"{DAMON}/0/contexts/0/schemes"
    files = {
        "proc/sys/kernel/osrelease": release,
        f"{DAMON}/nr_kdamonds": "1",
        f"{DAMON}/0/contexts/nr_contexts": "1",
        f"{schemes}/nr_schemes": "2",
        f"{schemes}/0/action": "stat",
        f"{schemes}/1/action": "migrate_hot",
    }
    found = ask(fake(files), "conflict.damon_migrate")
    assert found.status is Status.CONFLICT
    assert found.reason.startswith("schemes move pages beside tierd (kdamond 0: migrate_hot)")
    assert ("may land on another one" in found.reason) is lands
    files[f"{schemes}/1/action"] = "stat"
    assert status_of(fake(files), "conflict.damon_migrate") == "clear"


MEMMAP = "sys/module/memory_hotplug/parameters/memmap_on_memory"


@pytest.mark.parametrize("switch", ["Y", "force"])
def test_page_descriptors_in_slow_memory_are_told_of(fake: MakeHost, switch: str) -> None:
    dax = "sys/bus/dax/devices/dax0.0"
    device = {f"{dax}/target_node": "1", f"{dax}/memmap_on_memory": "1"}
    found = ask(fake({MEMMAP: switch, **device}), "memory.memmap")
    assert found.status is Status.NO
    assert "dax0.0 lie on the device" in found.reason
    assert f"/{dax}/memmap_on_memory" in found.hint
    for files in (
        device,
        {MEMMAP: "N", **device},
        {MEMMAP: switch, **device, f"{dax}/memmap_on_memory": "0"},
    ):
        assert status_of(fake(files), "memory.memmap") == "yes"
    fast = {MEMMAP: switch, **device, f"{dax}/target_node": "0"}
    assert status_of(fake(fast), "memory.memmap") == "unknown"
    assert status_of(fake({MEMMAP: switch}), "memory.memmap") == "unknown"


@pytest.mark.parametrize("module", ["damon_reclaim", "damon_lru_sort", "damon_stat"])
def test_kernel_modules_that_use_damon_conflict(fake: MakeHost, module: str) -> None:
    path = f"sys/module/{module}/parameters/enabled"
    assert status_of(fake({path: "N"}), "conflict.damon") == "clear"
    taken = fake({path: "Y"})
    assert module in ask(taken, "conflict.damon").reason
    assert status_of(taken, "damon.free") == "no"


def test_interleave_weights_conflict_if_somebody_set_them(fake: MakeHost) -> None:
    folder = "sys/kernel/mm/mempolicy/weighted_interleave"
    name = "conflict.weighted_interleave"
    assert status_of(fake(), name) == "clear"
    assert status_of(fake({f"{folder}/node0": "1", f"{folder}/node1": "1"}), name) == "clear"
    assert status_of(fake({f"{folder}/node0": "7", f"{folder}/node1": "1"}), name) == "conflict"
    assert status_of(fake({f"{folder}/auto": "true"}), name) == "clear"


def test_cpusets_that_keep_nodes_away_conflict(fake: MakeHost) -> None:
    assert status_of(fake(status_file(0, "Mems_allowed_list:\t0-1\n")), "conflict.cpusets") == (
        "clear"
    )
    own = ask(fake(status_file(0, "Mems_allowed_list:\t0\n")), "conflict.cpusets")
    assert own.reason == "this process may use nodes 0 only"
    host = fake(
        {
            **status_file(0, "Mems_allowed_list:\t0-1\n"),
            "sys/fs/cgroup/cgroup.procs": "",
            "sys/fs/cgroup/a/cgroup.procs": "",
            "sys/fs/cgroup/a/cpuset.mems": "0-1",
            "sys/fs/cgroup/a/b/cgroup.procs": "",
            "sys/fs/cgroup/a/b/cpuset.mems": "1",
        }
    )
    assert "/sys/fs/cgroup/a/b" in ask(host, "conflict.cpusets").reason


@pytest.mark.parametrize(
    "name", ["move_pages", "pagemap_scan", "process_madvise", "bpf.syscall", "perf.fault_address"]
)
def test_no_system_call_is_tried_on_a_captured_tree(fake: MakeHost, name: str) -> None:
    finding = ask(fake(), name)
    assert finding.status is Status.UNKNOWN
    assert "captured tree" in finding.reason


@pytest.mark.parametrize(
    ("name", "edge", "error", "part"),
    [
        ("bpf.syscall", "sources.ebpf.syscalls.make_map", errno.EPERM, "CAP_BPF"),
        (
            "perf.fault_address",
            "sources.ebpf.syscalls.perf_event_open",
            errno.EACCES,
            "CAP_PERFMON",
        ),
        ("move_pages", "doctor.moving.touched_page", errno.ENOSYS, "CONFIG_MIGRATION"),
        ("move_pages", "doctor.moving.touched_page", errno.EPERM, "seccomp"),
        ("pagemap_scan", "doctor.moving.scan_own_page", errno.ENOTTY, "6.7"),
        ("process_madvise", "doctor.moving.advise_own_page", errno.EPERM, "CAP_SYS_NICE"),
        ("process_madvise", "doctor.moving.advise_own_page", errno.ENOSYS, "5.10"),
    ],
)
def test_a_refused_system_call_says_what_helps(
    fake: MakeHost,
    monkeypatch: pytest.MonkeyPatch,
    *,
    name: str,
    edge: str,
    error: int,
    part: str,
) -> None:
    def refuse(*_args: object) -> None:
        raise OSError(error, "refused")

    monkeypatch.setattr(f"tierd.{edge}", refuse)
    finding = ask(live(fake()), name)
    assert finding.status is Status.NO
    assert part in finding.hint


def test_move_pages_goes_to_every_other_node_and_back(
    fake: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []

    def page_to(_address: int, node: int | None) -> int:
        asked.append(node)
        return 0 if node is None else node

    monkeypatch.setattr(moving, "page_to", page_to)
    finding = ask(live(fake(base="lab-hbm-dram-cxl")), "move_pages")
    assert finding.reason == "moved a page from node 0 to node 1, 2 and back"
    assert asked == [None, 1, 2, 0]


def test_a_page_that_stays_where_it_is_is_a_no(
    fake: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "page_to", lambda _address, node: -errno.EBUSY if node else 0)
    finding = ask(live(fake()), "move_pages")
    assert finding.status is Status.NO
    assert "node 1: Device or resource busy" in finding.reason


REFUSED = OSError(errno.EACCES, os.strerror(errno.EACCES))
ALL_CAPABILITIES = "CapEff:\t000001ffffffffff\n"


@pytest.mark.parametrize(
    ("files", "error", "said"),
    [
        (
            {"proc/self/attr/current": "cri-containerd.apparmor.d (enforce)"},
            REFUSED,
            "confined by a security module as cri-containerd.apparmor.d (enforce)",
        ),
        (
            {"proc/self/attr/current": "system_u:system_r:container_t:s0:c1,c2"},
            REFUSED,
            "confined by a security module as system_u:system_r:container_t:s0:c1,c2",
        ),
        (
            {"sys/kernel/security/lockdown": "none integrity [confidentiality]"},
            REFUSED,
            "the kernel is locked down (confidentiality)",
        ),
        ({"proc/self/uid_map": "0 1000 1"}, REFUSED, "it runs in a user namespace"),
        ({"proc/self/status": "CapEff:\t0000000000080000\n"}, REFUSED, "it has not got CAP_BPF"),
        ({}, REFUSED, "nothing that could be found out refuses it"),
        ({}, OSError(errno.EROFS, "Read-only file system"), "a container runtime does that"),
        ({}, OSError(errno.EBUSY, "Device or resource busy"), "Device or resource busy"),
    ],
)
def test_who_refuses_is_named(
    tmp_path: Path, files: dict[str, str], error: OSError, said: str
) -> None:
    """A security module, lockdown or namespace refuses what files' permissions promise."""
    plain = {"proc/self/attr/current": "unconfined", "proc/self/status": ALL_CAPABILITIES,
             "sys/kernel/security/lockdown": "[none] integrity confidentiality",
             "proc/self/uid_map": "0 0 4294967295"}  # fmt: skip
    for name, text in (plain | files).items():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    assert said in Host(tmp_path).who_refuses(error)


def test_what_is_to_be_written_is_opened_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """os.access() says yes to root where a profile of AppArmor denies writes below /sys."""
    (tmp_path / "state").write_text("kept")
    assert Host(tmp_path).write_refusal("state") == ""
    assert (tmp_path / "state").read_text() == "kept"

    def refuse(*_: object) -> int:
        raise REFUSED

    monkeypatch.setattr(os, "open", refuse)
    assert "/state cannot be opened for writing: Permission denied" in Host(tmp_path).write_refusal(
        "state"
    )


def test_processes_that_cannot_be_looked_at_are_an_obstacle() -> None:
    yes = [
        Finding(name, Group.MOVING, name, Status.YES, "")
        for name in ("tiers", "move_pages", *SOURCES["damon"])
    ]
    assert judge([*yes, Finding("peer", Group.MOVING, "", Status.YES, "")]).exit_code == 0
    refused = judge([*yes, Finding("peer", Group.MOVING, "", Status.NO, "")])
    assert refused.exit_code == 5
    assert "pages of other processes cannot be looked at" in refused.summary


def test_damon_is_no_source_without_its_tracepoint() -> None:
    """Where tracefs refuses, the service ended with status 5, and doctor said that it can run."""
    found = [
        Finding(name, Group.SOURCES, name, Status.YES, "")
        for name in ("tiers", "move_pages", *SOURCES["damon"])
        if name != "damon.tracepoint"
    ]
    refused = Finding("damon.tracepoint", Group.SOURCES, "", Status.NO, "")
    assert judge([*found, refused]).exit_code == 5
