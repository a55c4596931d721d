# SPDX-License-Identifier: Apache-2.0
"""Reports: what a recording holds, for people, as text, picture or page.

Owns: the figures (`analysis`) and one module per form.
Must not touch: the daemon; matplotlib is imported only where a PNG is asked for.
"""
