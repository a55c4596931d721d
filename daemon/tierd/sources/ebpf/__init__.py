# SPDX-License-Identifier: Apache-2.0
"""The eBPF layer: programs of `ebpf/`, loaded by a short-lived helper, read by sources."""
