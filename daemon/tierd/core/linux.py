# SPDX-License-Identifier: Apache-2.0
"""Numbers of Linux and of CPUs that Python's library does not name."""

from __future__ import annotations

from typing import Final

MLOCK_ON_FAULT: Final = 1 | 4
"""MCL_CURRENT and MCL_ONFAULT (uapi/asm-generic/mman.h): pages are locked as they come in."""
CAPABILITY_VERSION: Final = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3 (uapi/linux/capability.h)."""
PR_SET_PDEATHSIG: Final = 1
PR_CAPBSET_DROP: Final = 24
"""Options of prctl (uapi/linux/prctl.h)."""
NO_PIDFD: Final = -1
"""Of a process of which there is no descriptor."""
SO_RCVBUFFORCE: Final = 33
"""uapi/asm-generic/socket.h."""
NLMSG_DONE: Final = 3
NETLINK_CONNECTOR: Final = 11
"""uapi/linux/netlink.h."""
CN_PROC: Final = 1
"""CN_IDX_PROC and CN_VAL_PROC (uapi/linux/connector.h)."""
DATAGRAM_BYTES: Final = 65536
"""Largest message of the connector."""
PF_KTHREAD: Final = 0x00200000
"""Flag of kernel threads in field 9 of stat (include/linux/sched.h)."""
PAGEMAP_ENTRY_BYTES: Final = 8
PAGEMAP_PRESENT: Final = 1 << 63
PAGEMAP_SWAPPED: Final = 1 << 62
PAGEMAP_FILE: Final = 1 << 61
PAGEMAP_EXCLUSIVE: Final = 1 << 56
PAGEMAP_FRAME: Final = (1 << 55) - 1
"""Documentation/admin-guide/mm/pagemap.rst."""
SPACE_ENDS: Final = frozenset((1 << 47, 1 << 56))
"""Bytes of a user address space, by x86's four and five levels of page tables."""
LATENCY_CYCLES: Final = (3, 0xFFFF)
"""What MSR_PEBS_LD_LAT_THRESHOLD takes (Intel SDM volume 3, load latency facility)."""
IBS_PERIOD: Final = 1 << 26
"""IBS's counter has 27 bits (IbsOpMaxCnt and its extension)."""
COMPLETE_SAMPLES: Final = (6, 3)
"""The kernel completes a sample before the program runs from here on ("perf/core: Call
perf_prepare_sample() before running BPF")."""
CGROUP_ROOTS: Final = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
"""Where the cgroup v2 hierarchy is mounted (systemd: unified, hybrid)."""
CGROUP_NAMESPACE_INODE: Final = 0xEFFFFFFB
"""Inode of the first cgroup namespace (include/linux/proc_ns.h, PROC_CGROUP_INIT_INO)."""
INTERLEAVE_MAX_WEIGHT: Final = 255
"""Of a node (Documentation/admin-guide/mm/numa_memory_policy.rst)."""
UNCORE_UNITS: Final = {"": 1.0, "Bytes": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "64Bytes": 64.0}
"""Units of counters in sysfs → bytes."""
NODES: Final = "sys/devices/system/node"
"""The folder of memory nodes, below the root."""
