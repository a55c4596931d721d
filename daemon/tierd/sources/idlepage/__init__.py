# SPDX-License-Identifier: Apache-2.0
"""Accessed bits by the kernel's idle page tracking, on hosts without the kernel module.

`source` is the access source: the one of `tierd.sources.scan`, with its controller and records, and
a scanner in this process in place of the module. `scanner` is that scanner's thread, `rounds` its
scans of one process, `native` the C code that reads and writes the kernel's files, `ring` where
records go, and `host` the files, and pagemaps among them.
"""
