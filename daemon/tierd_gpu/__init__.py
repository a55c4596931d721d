# SPDX-License-Identifier: Apache-2.0
"""Peer-GPU memory as a tier: harvest what neighbours do not use.

The decision core (`harvest`, `plan`, `reclaim`, `share`, `account`, `predict`, `cost`)
does no I/O and has no clock; `server` and `nvml` do I/O for it. Nothing here is
imported by the daemon's start unless GPUs are asked for.
"""
