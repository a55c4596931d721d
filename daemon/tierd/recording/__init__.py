# SPDX-License-Identifier: Apache-2.0
"""Recordings: what the loop saw, decided and did, in a file that can be replayed.

Owns: the file format (docs/recording.md), writing it beside the loop, reading it back.
Must not touch: the loop's decisions; reading one needs no privilege and no host.
"""

from tierd.recording.errors import RecordingError

__all__ = ["RecordingError"]
