# SPDX-License-Identifier: Apache-2.0
"""Which processes are watched, and which of their pages may be moved."""
