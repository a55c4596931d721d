# SPDX-License-Identifier: Apache-2.0
"""`RecordingError`: the one error of every recording that cannot be used."""

from __future__ import annotations

from tierd.core.errors import TierdError


class RecordingError(TierdError):
    """A file is no recording, is of another version, or says what no recorder writes."""
