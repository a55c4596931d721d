# SPDX-License-Identifier: Apache-2.0
"""Readers of the host's memory topology; they make a `TierMap`."""

from tierd.topology.hotplug import HotplugWatcher
from tierd.topology.reader import read

__all__ = ["HotplugWatcher", "read"]
