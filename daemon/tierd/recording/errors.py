# SPDX-License-Identifier: Apache-2.0
"""`RecordingError`: the one error of every recording that cannot be used.

Owns: the exception.
Must not touch: anything else.
"""

from __future__ import annotations

from tierd.errors import TierdError


class RecordingError(TierdError):
    """A file is no recording, is of another version, or says what no recorder writes."""
