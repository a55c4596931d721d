# SPDX-License-Identifier: Apache-2.0
"""The eBPF layer: programs of `ebpf/`, loaded by a short-lived helper, read by sources.

syscalls   bpf(2), perf_event_open(2), capabilities, by number
perf       perf_event_attr, ring buffers and their records
host       CPUs, PMUs and tracepoints, as the kernel shows them
events     event tables of CPU models, from ebpf/events/*.toml
files      where sources, objects, tables and kernel headers are
probe      what this host can do, each ability by itself
pins       bpffs folders of the hand-over, and the removal of stale ones
helper     the program that compiles or loads, in a process of its own
loader     runs the helper and takes its descriptors over
table      the mapped tables that programs count in
samples    what is watched, what a sampler is told and tells
sampler    one program on one event per CPU: what the sources are made of
source     a sampler as an access source: the course of a poll
adapt      periods and ways of counting that follow rate, cost and loss
"""
