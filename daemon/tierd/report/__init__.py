# SPDX-License-Identifier: Apache-2.0
"""Reports: what a recording holds, for people, as text, picture or page."""
