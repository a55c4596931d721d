# SPDX-License-Identifier: Apache-2.0
"""Recordings: what the loop saw, decided and did, in a file that can be replayed."""

from __future__ import annotations

from tierd.core.errors import TierdError


class RecordingError(TierdError):
    """A file is no recording, is of another version, or says what no recorder writes."""
