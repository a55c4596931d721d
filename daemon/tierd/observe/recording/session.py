# SPDX-License-Identifier: Apache-2.0
"""Recording for as long as a service runs: where to, how much, and what is kept."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tierd.config.model import Config
from tierd.core.errors import UnavailableError
from tierd.core.logfmt import logfmt
from tierd.observe.recording.recorder import Recorder

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"tierd-\d{8}T\d{6}Z(-\d+)?\.rec", re.ASCII)


def file_name() -> str:
    """The name of a recording that starts now."""
    return time.strftime("tierd-%Y%m%dT%H%M%SZ.rec", time.gmtime())


@contextlib.contextmanager
def recording(
    config: Config,
    *,
    path: Path | None = None,
    limit_bytes: int | None = None,
    duration_ns: int | None = None,
    only: bool = False,
    dry_run: bool = False,
) -> Iterator[Recorder | None]:
    """A recorder while the block runs; None where nothing shall be recorded.

    Args:
        config: [record] says whether and where to where `path` is None.
        limit_bytes: in place of `record.size`.
        duration_ns: the recording ends after so long.
        only: the service ends with the recording (by SIGTERM to itself).

    Raises:
        UnavailableError: the file or its folder cannot be made.
    """
    if path is None and not config.record.enabled:
        yield None
        return
    recorder = Recorder(
        _next_file(config) if path is None else path,
        config.record.size_bytes if limit_bytes is None else limit_bytes,
        duration_ns=duration_ns,
        on_end=_end_service if only else None,
        dry_run=dry_run,
    )
    log.info(logfmt(event="recording", file=recorder.path))
    try:
        yield recorder
    finally:
        stats = recorder.close()
        log.info(
            logfmt(
                event="recorded",
                file=recorder.path,
                ticks=stats.ticks,
                bytes=stats.bytes,
                dropped_ticks=stats.dropped_ticks,
                dropped_calls=stats.dropped_calls,
                reason=stats.ended,
            )
        )


def _end_service() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _next_file(config: Config) -> Path:
    """A name in the configured folder, which is made, after room was made for it."""
    folder = Path(config.record.folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        old = sorted(each for each in folder.iterdir() if _NAME.fullmatch(each.name))
        for each in old[: max(0, len(old) - config.record.keep + 1)]:
            each.unlink(missing_ok=True)
            log.info(logfmt(event="recording_removed", file=each))
    except OSError as error:
        raise UnavailableError(
            f"cannot make room for a recording in {folder}: {error.strerror}",
            hint="record.folder names the folder, record.enabled = false turns recording off",
        ) from None
    first = folder / file_name()
    names = [first, *(first.with_stem(f"{first.stem}-{number}") for number in range(1, 1000))]
    return next((each for each in names if not os.path.lexists(each)), first)
