# SPDX-License-Identifier: Apache-2.0
"""The control loop: it wires the components and owns time, signals and shutdown."""
