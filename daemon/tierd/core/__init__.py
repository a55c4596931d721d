# SPDX-License-Identifier: Apache-2.0
"""Types and constants that every package shares."""
