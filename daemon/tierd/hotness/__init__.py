# SPDX-License-Identifier: Apache-2.0
"""Heat: how hot each tracked page is, in bounded memory.

Import `HeatView` from `tierd.hotness.view` (pure) and `HeatTable` from
`tierd.hotness.table` (needs the native module).
"""
