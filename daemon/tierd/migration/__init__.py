# SPDX-License-Identifier: Apache-2.0
"""Migration: the only package that moves pages. It binds the native mover and promoter."""

from __future__ import annotations

from tierd.migration.executor import DryMover, Mover, NativeMover

__all__ = ["DryMover", "Mover", "NativeMover"]
