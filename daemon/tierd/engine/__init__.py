# SPDX-License-Identifier: Apache-2.0
"""The control loop: it wires the components and owns time, signals and shutdown."""

from tierd.engine.loop import Service

__all__ = ["Service"]
