# SPDX-License-Identifier: Apache-2.0
"""The fast path: moves between two ticks, by the rule that ticks follow."""
