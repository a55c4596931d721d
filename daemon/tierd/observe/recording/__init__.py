# SPDX-License-Identifier: Apache-2.0
"""Recordings: what the loop saw, decided and did, in a file that can be replayed."""

from tierd.observe.recording.errors import RecordingError

__all__ = ["RecordingError"]
