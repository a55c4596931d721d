# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the benchmark's machine is set to before its cell.
set -e
echo 0 > /proc/sys/kernel/numa_balancing
# The oracle knows pages by their address, and runs shall repeat.
echo 0 > /proc/sys/kernel/randomize_va_space
echo 0 > /sys/kernel/mm/numa/demotion_enabled
# Huge pages, which the workloads do not use, have these two raised for a machine of
# this size so far that they would be the benchmark.
echo 0 > /proc/sys/vm/compaction_proactiveness
echo 8192 > /proc/sys/vm/min_free_kbytes
# Free memory is in the node's lists, where it is counted, and not in the CPU's.
echo 1000000 > /proc/sys/vm/percpu_pagelist_high_fraction
# No page fault is left out because there are many.
echo 1000000000 > /proc/sys/kernel/perf_event_max_sample_rate
echo 0 > /proc/sys/kernel/perf_cpu_time_max_percent
# What the boot left on the fast node is not there to be demoted.
for each in /proc/[0-9]*; do migratepages "${each#/proc/}" 0 1 2>/dev/null || true; done
echo 3 > /proc/sys/vm/drop_caches
# What the kernel puts off after a boot is done in the first minute; idle, it costs nothing.
sleep 60
