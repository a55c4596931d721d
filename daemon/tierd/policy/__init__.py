# SPDX-License-Identifier: Apache-2.0
"""Pure decisions: what to move where; no I/O, no clock."""
