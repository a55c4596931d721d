# SPDX-License-Identifier: Apache-2.0
"""`tierd run` and `tierd record`: the service in the foreground."""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tierd.core import units
from tierd.core.errors import ExitCode, UnavailableError
from tierd.core.logfmt import logfmt

if TYPE_CHECKING:
    from tierd.config.model import Config
    from tierd.core.tiermap import TierMap
    from tierd.engine.wakeups import SighupFlag
    from tierd.observe.recording.recorder import Recorder

JOURNAL_PRIORITY: Final = {
    logging.DEBUG: "<7>",
    logging.INFO: "<6>",
    logging.WARNING: "<4>",
    logging.ERROR: "<3>",
    logging.CRITICAL: "<2>",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file")
    parser.add_argument(
        "--dry-run", action="store_true", help="take every step but the moves themselves"
    )
    parser.add_argument(
        "--once", action="store_true", help="watch for one half-life of heat, act once, end"
    )
    parser.add_argument(
        "--wait", action="store_true", help="wait for a second tier (hotplug) where there is one"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the running totals as JSON lines on stdout"
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="overrides the configuration's log.level",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="record what is seen and done in FILE, for tierd replay and tierd report",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="internal.NAME=VALUE",
        help="for experiments: another value of a constant that `tierd config show --internal` "
        "prints; may be given several times",
    )
    parser.set_defaults(record_size=None, record_duration=None, record_only=False)


class RecordCommand:
    """`tierd record`: the service in the foreground, recording what it sees and does."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Those of `tierd run`, and how long and how much to record."""
        add_arguments(parser)
        parser.add_argument(
            "-o",
            "--output",
            dest="record",
            type=Path,
            metavar="FILE",
            help="file to make (default: tierd-TIME.rec in this folder); never replaced",
        )
        parser.add_argument(
            "--duration",
            dest="record_duration",
            type=_parsed(units.parse_duration_ns),
            metavar="TIME",
            help='end after this time, for example "60s"; otherwise on SIGINT or SIGTERM',
        )
        parser.add_argument(
            "--size",
            dest="record_size",
            type=_parsed(units.parse_size, 1 << 16),
            metavar="SIZE",
            help="end when the file would grow beyond this (default: record.size, 256MiB)",
        )
        parser.set_defaults(record_only=True)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Record; the exit codes are those of `tierd run`."""
        if args.record is None:
            args.record = Path(time.strftime("tierd-%Y%m%dT%H%M%SZ.rec", time.gmtime()))
        return run(args)


COMMANDS: Final = {"record": RecordCommand}


def _parsed(parse: Callable[[str], int], least: int = 0) -> Callable[[str], int]:
    """The type of an argument with a unit."""

    def read(text: str) -> int:
        try:
            value = parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is less than {units.size_text(least)}")
        return value

    return read


class _Formatter(logging.Formatter):
    """One line a record: a priority for journald where it reads them, else the time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("%(message)s")
        self._journal = "JOURNAL_STREAM" in environment

    def format(self, record: logging.LogRecord) -> str:
        if self._journal:
            prefix = JOURNAL_PRIORITY.get(record.levelno, "<6>")
        else:
            seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(record.created))
            prefix = f"time={seconds}.{int(record.msecs):03d} "
        return f"{prefix}level={record.levelname.lower()} {super().format(record)}"


def _set_up_logging(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(os.environ))
    root = logging.getLogger("tierd")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def _override(settings: Sequence[str]) -> None:
    """Put other tuning constants in force.

    Raises:
        ConfigError: one is no `internal.` constant, or its value is wrong.
    """
    from tierd.core import tuning
    from tierd.core.errors import ConfigError
    from tierd.replay.settings import split_internal

    others, internal = split_internal(settings)
    if others:
        raise ConfigError(
            others[0].partition("=")[0],
            "tierd run --set takes tuning constants only, internal.NAME=VALUE",
            hint="settings belong in the configuration file",
        )
    tuning.override(internal)
    for each in internal:
        logging.getLogger("tierd").warning('event=constant_overridden constant="%s"', each)


def _start_agents() -> None:
    """Have what may block for ever done by other processes, while this one is small."""
    from tierd._native import lib
    from tierd.core import bounds
    from tierd.core.process import NUMBERS

    # For pages of other processes, and for their pagemap, which is their user's alone.
    names = ("CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE", "CAP_SYS_NICE")
    keep = sum(1 << NUMBERS[name] for name in names)
    if error := -lib.tierd_agents_start(keep, bounds.ANSWER_NS):
        logging.getLogger("tierd.run").warning(logfmt(event="no_agents", reason=os.strerror(error)))


def run(args: argparse.Namespace) -> int:
    """Run the service; returns its exit code."""
    # Imported here: the other commands start without it.
    from tierd.engine.wakeups import SighupFlag

    # Until the service can read its configuration again, a request to do so is kept.
    sighup = SighupFlag()
    signal.signal(signal.SIGHUP, sighup)
    # NumPy's BLAS would start a thread for each CPU, for nothing.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from tierd.config.model import LogConfig
    from tierd.config.whole import load
    from tierd.observe.recording.session import recording

    def configured() -> Config:
        found = load(args.config)
        return replace(found, log=LogConfig(args.log_level)) if args.log_level else found

    config = configured()
    _set_up_logging(config.log.level)
    _start_agents()
    _override(args.set)
    if os.geteuid() != 0 and not args.dry_run:
        raise UnavailableError(
            "tierd run needs to be root to see and move other processes' pages",
            hint="run it as root, or try --dry-run on your own processes",
        )
    with recording(
        config,
        path=args.record,
        limit_bytes=args.record_size,
        duration_ns=args.record_duration,
        only=args.record_only,
        dry_run=args.dry_run,
    ) as recorder:
        return _run(args, configured, config, recorder, sighup)


def _run(
    args: argparse.Namespace,
    configured: Callable[[], Config],
    config: Config,
    recorder: Recorder | None,
    sighup: SighupFlag,
) -> int:
    from tierd.cli._front import Endpoints
    from tierd.config.whole import check_against
    from tierd.engine.build import build, nothing_to_do
    from tierd.engine.process import keep_heap, load_all, rest_collector, settle, stay_resident
    from tierd.engine.reload import Reloader
    from tierd.engine.systemd import SystemdNotifier

    log = logging.getLogger("tierd.run")
    # Where a watchdog ends a stuck loop, the log shall say where it was stuck.
    faulthandler.enable()
    if not keep_heap():
        log.info("event=thp_not_disabled")
    manager = SystemdNotifier()
    service, tiers = build(
        config, dry_run=args.dry_run, wait=args.wait, observers=[manager], recorder=recorder
    )
    service.manager = manager
    service.sighup = sighup
    service.work.on_attached = settle
    service.reloader = Reloader(configured, service.reconfigure)
    service.reloader.listeners.append(manager)
    front = Endpoints(config, service, dry_run=args.dry_run, recorder=recorder)
    service.reloader.listeners.append(front.state)
    if not args.wait:  # what is waited for need not be there yet
        check_against(config, tiers)
    _announce(args, config, tiers)

    def summary(kind: str = "summary") -> None:
        _summarise(kind, service.totals.as_json(), as_json=args.json)

    load_all()
    rest_collector()
    stay_resident()
    with front.open(once=args.once):
        code = service.run(once=args.once, on_summary=summary)
    if code == ExitCode.NOTHING_TO_DO:
        log.warning(logfmt(event="nothing_to_do", reason=nothing_to_do(tiers)))
        if args.json:
            print(json.dumps({"event": "nothing_to_do", "reason": nothing_to_do(tiers)}))
        return code
    summary("ended")
    return code


def _announce(args: argparse.Namespace, config: Config, tiers: TierMap) -> None:
    """Say what starts, and who else moves pages here."""
    from tierd.doctor import conflicting

    log = logging.getLogger("tierd.run")
    log.info(
        logfmt(
            event="started",
            dry_run=args.dry_run,
            tiers=" > ".join(f"{t.name}({','.join(map(str, t.nodes))})" for t in tiers.tiers),
            config=",".join(config.files) or "defaults",
        )
    )
    if args.json:
        print(json.dumps({"event": "started", "dry_run": args.dry_run}), flush=True)
    for each in tiers.excluded:
        log.info(logfmt(event="node_excluded", node=each.memory.node, reason=each.reason))
    for found in conflicting():
        log.warning(
            logfmt(event="conflict", what=found.title, reason=found.reason, hint=found.hint)
        )


SUMMARY: Final = (
    "promoted_pages", "demoted_pages", "ticks", "samples", "lost_samples", "migration_results",
    "errors",
)  # fmt: skip
"""Totals in the log; --json prints all."""


def _summarise(kind: str, totals: Mapping[str, Any], *, as_json: bool) -> None:
    logging.getLogger("tierd.run").info(
        logfmt(event=kind, **{name: totals[name] for name in SUMMARY})
    )
    if as_json:
        print(json.dumps({"event": kind, **totals}), flush=True)
