# SPDX-License-Identifier: Apache-2.0
"""Who may read the figures: HTTP basic authentication against bcrypt hashes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import threading
from collections.abc import Sequence
from typing import Final

from tierd.core.errors import UnavailableError

_NOBODY: Final = "$2b$10$.vGA1O9wmRjrwAVXD98HNOgsNpDczlqm3Jq7KnEd1rVAGv3Fykk1a"
"""A hash to compare with where the name is unknown, so that answers take the same time."""
_REMEMBERED: Final = 64
_LONGEST: Final = 1024


class BasicAuth:
    """Checks names and passwords.

    A check takes tens of milliseconds of CPU on purpose, so only one runs at a time, and
    what was right is remembered (as a salted hash).

    Args:
        users: lines "NAME:HASH"; empty lets everybody in.

    Raises:
        UnavailableError: there are users, and the bcrypt module is missing.
    """

    def __init__(self, users: Sequence[str]) -> None:
        self._hashes = dict(user.split(":", 1) for user in users)
        self._salt = secrets.token_bytes(16)
        self._right: set[bytes] = set()
        self._lock = threading.Lock()
        if self._hashes:
            try:
                import bcrypt
            except ImportError as error:
                raise UnavailableError(
                    "metrics.users is set, and the Python module bcrypt is not installed",
                    hint="install python3-bcrypt (or pip install bcrypt)",
                ) from error
            self._check = bcrypt.checkpw

    def permits(self, header: str | None) -> bool:
        """Whether the value of an Authorization header lets its sender in."""
        if not self._hashes:
            return True
        given = _decode(header)
        if given is None:
            return False
        name, password = given
        mark = hashlib.sha256(
            self._salt + len(name).to_bytes(4, "big") + name.encode() + password
        ).digest()
        if mark in self._right:
            return True
        with self._lock:
            known = self._hashes.get(name)
            try:
                right = self._check(password[:72], (known or _NOBODY).encode())
            except ValueError:  # a NUL in the password, or a hash bcrypt cannot read
                return False
            if right and known is not None:
                if len(self._right) >= _REMEMBERED:
                    self._right.clear()
                self._right.add(mark)
            return right and known is not None


def _decode(header: str | None) -> tuple[str, bytes] | None:
    """Name and password of a header (RFC 7617), or None where it is not one."""
    if header is None or len(header) > _LONGEST:
        return None
    scheme, _, value = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(value, validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None
