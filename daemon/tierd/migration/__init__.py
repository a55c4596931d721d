# SPDX-License-Identifier: Apache-2.0
"""The binding of the native mover, the only room that moves pages."""

from __future__ import annotations

from tierd.migration.base import DryMover, Mover
from tierd.migration.executor import NativeMover

__all__ = ["DryMover", "Mover", "NativeMover"]
