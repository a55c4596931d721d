# SPDX-License-Identifier: Apache-2.0
"""The tierd kernel module from user space: control by netlink, data by a mapped ring."""
