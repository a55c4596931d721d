# SPDX-License-Identifier: Apache-2.0
"""Migration: the only package that moves pages. It binds the native mover and promoter."""

from __future__ import annotations

from tierd.migration.base import DryMover, Mover
from tierd.migration.executor import NativeMover

__all__ = ["DryMover", "Mover", "NativeMover"]
