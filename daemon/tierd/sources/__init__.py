# SPDX-License-Identifier: Apache-2.0
"""Access sources: one module per way of seeing which pages are touched."""
