# SPDX-License-Identifier: Apache-2.0
"""tierd: keep hot pages in fast memory and cold pages in large memory."""

__version__ = "0.1.0"
