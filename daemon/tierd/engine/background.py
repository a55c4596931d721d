# SPDX-License-Identifier: Apache-2.0
"""What runs beside the loop for its life, and without which the loop runs as well."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Protocol

from tierd.core.errors import UnavailableError
from tierd.core.logfmt import logfmt

log = logging.getLogger(__name__)


class BackgroundService(Protocol):
    """Started before the first tick, closed after the last."""

    name: str

    def start(self) -> None:
        """Begin, without blocking for long.

        Raises:
            UnavailableError: it cannot be had here; the loop goes on without it.
        """
        ...

    def close(self) -> None:
        """End; also called when `start` failed."""
        ...


@contextlib.contextmanager
def beside(background: Sequence[BackgroundService]) -> Iterator[None]:
    """Run companions for the length of a block."""
    for service in background:
        try:
            service.start()
        except UnavailableError as error:
            log.warning(
                logfmt(
                    event="background_service_unavailable",
                    name=service.name,
                    reason=error.message,
                    hint=error.hint,
                )
            )
        except Exception:
            log.exception(logfmt(event="background_service_failed", name=service.name))
    try:
        yield
    finally:
        for service in reversed(background):
            try:
                service.close()
            except Exception:
                log.exception(logfmt(event="background_service_failed", name=service.name))
