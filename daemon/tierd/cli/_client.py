# SPDX-License-Identifier: Apache-2.0
"""The commands that ask the running service and print its answers, and what all clients share."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tierd.control.protocol import Client, NotRunningError
from tierd.core.errors import ConfigError, ExitCode, UnavailableError
from tierd.core.logfmt import printable

if TYPE_CHECKING:
    from tierd.config.serving import ControlConfig

Answer = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser, *, as_json: bool = True) -> None:
    """The options that all of them have."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration of the service")
    parser.add_argument("--socket", type=Path, metavar="PATH", help="overrides control.socket")
    if as_json:
        parser.add_argument(
            "--json", action="store_true", help="print JSON (docs/operate/control.md)"
        )


def configured(args: argparse.Namespace) -> ControlConfig:
    """[control] of the configuration; of a broken one too, as long as that part is right.

    Whoever has just broken the configuration needs these commands most.

    Raises:
        ConfigError: [control] itself is wrong, or a file that was named cannot be read.
    """
    # Imported here: a command that is given a socket needs no configuration.
    from tierd.config.files import load_section
    from tierd.config.serving import ControlConfig

    try:
        return load_section(ControlConfig, "control", args.config)
    except ConfigError:
        if args.config is not None:
            raise
        return ControlConfig()


def connect(args: argparse.Namespace) -> Client:
    """A connection to the service.

    Raises:
        UnavailableError: it does not run, or this user may not.
    """
    return Client(args.socket or Path(configured(args).socket))


def share(part: float | None, whole: float | None) -> str:
    """A percentage, or "-" where it is not known."""
    return f"{100 * part / whole:.1f}%" if part is not None and whole else "-"


def table(rows: list[list[Any]], right: frozenset[int] = frozenset()) -> list[str]:
    """Rows with aligned columns; columns in `right` are aligned to the right."""
    texts = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in texts
    ]


@dataclass(frozen=True, slots=True)
class Command:
    """A command of this module; its names are those that a command's module has.

    Attributes:
        ask: gives the service's answers; `kept` in one is False where the command failed.
        text: the lines for one answer, where JSON is not asked for.
        options: the command's own, each with the keywords of `add_argument`.
        indent: of the JSON.
    """

    ask: Callable[[argparse.Namespace], Iterable[Answer]]
    text: Callable[[Answer, argparse.Namespace], Iterable[str]]
    options: tuple[tuple[str, dict[str, Any]], ...] = ()
    indent: int | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Arguments of the command."""
        add_arguments(parser)
        for name, keywords in self.options:
            parser.add_argument(name, **keywords)

    def run(self, args: argparse.Namespace) -> int:
        """Print each answer as it comes."""
        code = ExitCode.OK
        for answer in self.ask(args):
            shown = [json.dumps(answer, indent=self.indent)] if args.json else []
            for line in shown or self.text(answer, args):
                print(line, flush=True)
            code = code if answer.get("kept", True) else ExitCode.FAILURE
        return code


def _events(args: argparse.Namespace) -> Iterator[Answer]:
    with connect(args) as client:
        print("decisions are shown as they come", file=sys.stderr)
        yield from islice(client.events(), args.count if args.count > 0 else None)


def _event_text(event: Answer, args: argparse.Namespace) -> Iterator[str]:
    del args
    kind = event.get("kind")
    when = time.strftime("%H:%M:%S", time.localtime(float(event.get("time", time.time()))))
    if kind == "moves":
        fates = ", ".join(f"{name} {count}" for name, count in event["migration_results"].items())
        low, high = event["heat"]
        heat = "put back" if event.get("undo") else f"heat {low:g} to {high:g}"
        yield printable(
            f"{when} {event['direction']} {event['source']} > {event['dest']} "
            f"{event['comm']}[{event['pid']}] {event['moved']}/{event['pages']} pages, "
            f"{heat}{f' ({fates})' if fates else ''} {event['cgroup']}"
        )
    elif kind == "held back":
        reasons = ", ".join(f"{why} {count}" for why, count in event["reasons"].items())
        yield printable(f"{when} held back: {reasons}")
    elif kind == "dropped":
        yield f"{when} {event['events']} events were dropped: this reader is too slow"
    else:
        rest = {key: value for key, value in event.items() if key not in ("kind", "time")}
        yield printable(f"{when} {kind} {json.dumps(rest)}")


def _explain(args: argparse.Namespace) -> Iterator[Answer]:
    wanted: dict[str, Any] = {"cgroup": args.what}
    if args.what.isascii() and args.what.isdigit():
        wanted = {"pid": int(args.what)}
    if args.address is not None:
        wanted["address"] = args.address
    with connect(args) as client:
        yield client.ask("explain", **wanted)


def _explain_text(answer: Answer, args: argparse.Namespace) -> Iterator[str]:
    del args
    yield from map(printable, answer.get("slow_nodes", ()))
    if "targets" in answer:
        yield f"{answer['targets']} watched processes in {printable(answer['cgroup'])}"
    for process in answer["processes"]:
        yield from _lines(process, "")
    if answer.get("left_out"):
        yield f"... and {answer['left_out']} smaller processes"


def _lines(values: Answer, indent: str) -> Iterator[str]:
    """A mapping of JSON values, one key a line."""
    for key, value in values.items():
        name = printable(key).replace("_", " ")
        if isinstance(value, Mapping):
            if value:
                yield f"{indent}{name}:"
                yield from _lines(value, indent + "  ")
        elif isinstance(value, list):
            yield f"{indent}{name}: {len(value)}"
            for entry in value:
                shown = entry if isinstance(entry, Mapping) else {"": entry}
                parts = (printable(f"{k} {v}".strip()) for k, v in shown.items() if v is not None)
                yield f"{indent}  - {', '.join(parts)}"
        else:
            yield f"{indent}{name}: {'-' if value is None else printable(value)}"


def _pause(args: argparse.Namespace) -> Iterator[Answer]:
    """A service that does not run will start paused."""
    try:
        with connect(args) as client:
            answer = client.ask("pause", reason=args.reason) | {"running": True}
    except NotRunningError:
        from tierd.control.kept import Pause, PauseFile

        pause = Pause(time.time(), os.getuid(), args.reason)
        PauseFile(Path(configured(args).state)).write(pause)
        answer = {"paused": pause.as_json(), "kept": True, "note": "", "running": False}
    yield answer


def _pause_text(answer: Answer, args: argparse.Namespace) -> Iterator[str]:
    del args
    running = answer["running"]
    yield (
        "paused: pages are watched, none is moved" if running
        else "tierd does not run; it will start paused"
    )  # fmt: skip
    if answer["note"]:
        yield f"  {answer['note']}"


def _resume(args: argparse.Namespace) -> Iterator[Answer]:
    """A service that does not run forgets the pause that it would start with."""
    running = True
    try:
        with connect(args) as client:
            was = bool(client.ask("resume")["was_paused"])
    except NotRunningError:
        from tierd.control.kept import PauseFile

        running = False
        kept = PauseFile(Path(configured(args).state))
        was = kept.read() is not None
        kept.clear()
    yield {"paused": None, "was_paused": was, "running": running}


def _resume_text(answer: Answer, args: argparse.Namespace) -> Iterator[str]:
    del args
    resumed = "resumed" if answer["running"] else "tierd does not run; it will not start paused"
    yield resumed if answer["was_paused"] else "it was not paused"


def _reload(args: argparse.Namespace) -> Iterator[Answer]:
    """A refusal is an error with the service's reason, and nothing has changed."""
    with connect(args) as client:
        yield client.ask("reload")


def _reload_text(answer: Answer, args: argparse.Namespace) -> Iterator[str]:
    del args
    yield f"in force now: {', '.join(answer['changed']) or 'nothing new'}"
    if answer["restart"]:
        yield f"  after a restart: {', '.join(answer['restart'])}"


def _set(args: argparse.Namespace) -> Iterator[Answer]:
    """Have the service use the value; then keep it if asked to."""
    from tierd.config.values import parse_assignment

    key, value = parse_assignment(args.assignment)
    with connect(args) as client:
        answer = client.ask("set", key=key, value=value)
    kept = ""
    if args.persist:
        from tierd.control.kept import persist

        main = args.config or _main_file(answer["files"])
        try:
            kept = str(persist(main, key, value))
        except OSError as error:
            raise UnavailableError(
                f"{key} is in force, but cannot be kept: {error.strerror}: {error.filename}"
            ) from error
    yield answer | {"file": kept}


def _main_file(files: list[str]) -> Path:
    """The main file of those a configuration was read from."""
    from tierd.config.files import DEFAULT_PATH

    if not files:
        return DEFAULT_PATH
    first = Path(files[0])
    return first.parent.parent / DEFAULT_PATH.name if first.parent.name == "conf.d" else first


def _set_text(answer: Answer, args: argparse.Namespace) -> Iterator[str]:
    key, kept = args.assignment.partition("=")[0].strip(), answer["file"]
    if key in answer["restart"]:
        yield f"{key} takes effect at the next start only" + ("" if kept else ", if persisted")
    else:
        yield f"{key} is in force" if answer["changed"] else f"{key} had that value already"
    if kept:
        yield f"  kept in {kept}"
    elif answer["changed"]:
        yield "  until the next reload or start; --persist keeps it"


def address(text: str) -> int:
    """An address of a process. Raises ArgumentTypeError: it is none."""
    try:
        return int(text, 0)
    except ValueError:
        why = f"{text!r} is no address; such as 0x7f12a4000000, of a range in /proc/PID/maps"
        raise argparse.ArgumentTypeError(why) from None


_COUNT = {"type": int, "default": 0, "metavar": "N", "help": "end after N events (0: never)"}
_WHAT = {"metavar": "PID|CGROUP", "help": "a process, or a path with a slash"}
_ADDRESS = {
    "type": address,
    "help": "one page of the process, in a range of its /proc/PID/maps: 0x7f...",
}
_REASON = {"default": "", "help": "kept, and shown by tierd status"}
_ASSIGNMENT = {"metavar": "KEY=VALUE", "help": 'e.g. migration.rate_limit="500MB/s"'}
_PERSIST = {
    "action": "store_true",
    "help": "write it to conf.d/90-set.toml too, for the next reload or start",
}
COMMANDS: Final = {
    "events": Command(_events, _event_text, (("--count", _COUNT),)),
    "explain": Command(
        _explain, _explain_text, (("what", _WHAT), ("--address", _ADDRESS)), indent=2
    ),
    "pause": Command(_pause, _pause_text, (("--reason", _REASON),)),
    "reload": Command(_reload, _reload_text),
    "resume": Command(_resume, _resume_text),
    "set": Command(_set, _set_text, (("assignment", _ASSIGNMENT), ("--persist", _PERSIST))),
}
