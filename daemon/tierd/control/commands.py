# SPDX-License-Identifier: Apache-2.0
"""The commands of the control socket: their arguments, who may, what they do."""

from __future__ import annotations

import logging
import os
import queue
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tierd import __version__
from tierd.config.matchers import within_cgroup
from tierd.config.whole import with_values
from tierd.control.events import EventFeed
from tierd.control.kept import LONGEST_REASON, Pause, PauseFile
from tierd.control.protocol import UNDO_REASON, ErrorKind, Peer, Request, RequestError
from tierd.control.status import status
from tierd.core.errors import TierdError
from tierd.core.logfmt import logfmt
from tierd.engine.loop import Service
from tierd.engine.wakeups import LoopEndedError
from tierd.observe.metrics.families import PAUSED, PAUSES
from tierd.observe.metrics.state import MetricsState
from tierd.observe.metrics.values import Labels

log = logging.getLogger(__name__)

T = TypeVar("T")
MOST_EXPLAINED: Final = 16
"""Processes of a control group that are explained, the largest first."""


@dataclass
class ControlContext:
    """What commands work on.

    Attributes:
        conflicts: who else moves pages here (asked outside of the loop).
        timeout_s: how long the loop may take to answer.
        metrics_url: where the figures are served, or why they are not.
    """

    service: Service
    state: MetricsState
    feed: EventFeed
    pause_file: PauseFile
    conflicts: Callable[[], list[dict[str, str]]] = list
    timeout_s: float = 5.0
    metrics_url: str = ""
    pause: Pause | None = None
    pauses: int = 0

    def restore(self) -> None:
        """Take up a pause from before the start; one that cannot be read counts as one."""
        try:
            self.pause = self.pause_file.read()
        except TierdError as error:
            log.error(logfmt(event="pause_unknown", reason=str(error)))
            self.pause = Pause(time.time(), -1, f"kept in doubt: {error.message}"[:LONGEST_REASON])
        if self.pause is not None:
            self.service.paused = True
            log.warning(
                logfmt(
                    event="paused",
                    since=time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(self.pause.since)),
                    reason=self.pause.reason or "none given",
                    hint="tierd resume ends it",
                )
            )

    def figures(self) -> Mapping[str, Mapping[Labels, float]]:
        """For the collector: these are true also while no tick ends."""
        return {PAUSED: {(): float(self.service.paused)}, PAUSES: {(): float(self.pauses)}}

    def in_loop(self, function: Callable[[], T]) -> T:
        """Run `function` in the loop's thread, between two ticks.

        Raises:
            RequestError: STUCK or STOPPING.
            Exception: whatever `function` raises.
        """
        try:
            future = self.service.calls.post(function)
        except queue.Full:
            raise _stuck("too many requests wait for the control loop") from None
        try:
            return future.result(self.timeout_s)
        except (FutureTimeoutError, CancelledError):
            if future.done() and not future.cancelled():
                return future.result()  # in the last moment, or its own TimeoutError
            began = "" if future.cancel() else "; it may still take effect"
            raise _stuck(
                f"the control loop did not answer within {self.timeout_s:g} s{began}"
            ) from None
        except LoopEndedError as error:
            raise RequestError(ErrorKind.STOPPING, str(error)) from None


Function = Callable[[ControlContext, Peer, Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        run: does it; what it returns is the answer's `result`.
        changes: whether it changes anything, which needs more than reading rights.
        args: name → types of its optional arguments.
    """

    run: Function
    changes: bool
    args: Mapping[str, tuple[type, ...]] = field(default_factory=dict)
    streams: bool = False


def dispatch(desk: ControlContext, peer: Peer, request: Request) -> Any:
    """Carry a request out. Raises RequestError: it fails."""
    command = REQUESTS.get(request.command)
    if command is None:
        raise RequestError(
            ErrorKind.UNKNOWN,
            f"no command {request.command[:40]!r}",
            f"there are {', '.join(sorted(REQUESTS))}",
        )
    if command.changes and not peer.may_change:
        raise RequestError(
            ErrorKind.DENIED, f"{request.command} needs root", "you may read: status, top, events"
        )
    _check(command, request)
    try:
        return command.run(desk, peer, request.args)
    except TierdError as error:
        raise RequestError(ErrorKind.REFUSED, error.message, error.hint) from error


def _check(command: Command, request: Request) -> None:
    for name, value in request.args.items():
        types = command.args.get(name)
        if types is None:
            known = ", ".join(sorted(command.args)) or "none"
            raise RequestError(
                ErrorKind.UNKNOWN,
                f"{request.command} has no argument {name[:40]!r}",
                f"arguments: {known}",
            )
        exact = isinstance(value, types) and (bool in types or not isinstance(value, bool))
        if object not in types and not exact:
            wanted = " or ".join(each.__name__ for each in types)
            raise RequestError(ErrorKind.MALFORMED, f"argument {name!r} must be {wanted}")


def _stuck(message: str) -> RequestError:
    return RequestError(ErrorKind.STUCK, message, "the log may tell what it is doing")


def _version(desk: ControlContext, peer: Peer, args: Mapping[str, Any]) -> Any:
    del desk, peer, args
    return {"version": __version__, "pid": os.getpid()}


def _status(desk: ControlContext, peer: Peer, args: Mapping[str, Any]) -> Any:
    hottest = bool(args.get("hottest", False))
    told = desk.in_loop(lambda: status(desk.service, desk.state, hottest=hottest))
    told["paused"] = None if desk.pause is None else desk.pause.as_json()
    told["conflicts"] = desk.conflicts()
    told["metrics"] = desk.metrics_url
    told["may_change"] = peer.may_change
    return told


def _pause(desk: ControlContext, peer: Peer, args: Mapping[str, Any]) -> Any:
    """The kill switch: it works even where the loop is stuck, and then is kept."""
    pause = Pause(time.time(), peer.uid, str(args.get("reason", ""))[:LONGEST_REASON])
    desk.service.paused = True  # a single store; the loop looks before each decision
    desk.service.components.mover.stop()
    desk.pause = pause
    desk.pauses += 1
    log.warning(logfmt(event="paused", uid=peer.uid, pid=peer.pid, reason=pause.reason or "none"))
    desk.feed.tell({"kind": "paused", "time": pause.since, "reason": pause.reason})
    told: dict[str, Any] = {"paused": pause.as_json(), "kept": True, "note": ""}
    try:
        desk.pause_file.write(pause)
    except TierdError as error:
        told |= {"kept": False, "note": f"a restart would end the pause: {error.message}"}
        log.error(logfmt(event="pause_not_kept", reason=error.message))
    try:
        desk.in_loop(desk.service.work.undo.cancel)
    except RequestError as error:
        told["note"] = f"{told['note']}; {error.message}".removeprefix("; ")
    return told


def _undo(desk: ControlContext, peer: Peer, args: Mapping[str, Any]) -> Any:
    """Pause, and have pages put back; where that goes on already, it goes on."""
    del args
    # The service undoes by itself, too, and then nothing is paused.
    going_on = desk.pause is not None and bool(desk.service.work.undo.as_json()["active"])
    told = {"note": ""} if going_on else _pause(desk, peer, {"reason": UNDO_REASON})
    desk.service.undo()
    log.warning(logfmt(event="undo", uid=peer.uid, pid=peer.pid))
    desk.feed.tell({"kind": "undo", "time": time.time()})
    return told


def _resume(desk: ControlContext, peer: Peer, args: Mapping[str, Any]) -> Any:
    del args

    def resume() -> bool:
        desk.pause_file.clear()
        desk.service.work.undo.cancel()
        desk.service.work.account.end()
        was, desk.service.paused, desk.pause = desk.service.paused, False, None
        desk.service.components.mover.resume()
        return was

    was = desk.in_loop(resume)
    log.warning(logfmt(event="resumed", uid=peer.uid, pid=peer.pid))
    desk.feed.tell({"kind": "resumed", "time": time.time()})
    return {"paused": None, "was_paused": was}


def _explain(desk: ControlContext, peer: Peer, args: Mapping[str, Any]) -> Any:
    del peer
    pid, cgroup, address = args.get("pid"), args.get("cgroup"), args.get("address")
    if (pid is None) == (cgroup is None) or (cgroup is not None and address is not None):
        raise RequestError(
            ErrorKind.MALFORMED, "explain takes a pid, perhaps with an address, or a cgroup"
        )
    if (pid is not None and not 0 < pid < 1 << 31) or (
        address is not None and not 0 <= address < 1 << 64
    ):
        raise RequestError(ErrorKind.MALFORMED, "no process or address has that number")
    fast_path = desk.service.components.fast_path
    if fast_path is None:
        raise RequestError(ErrorKind.REFUSED, "this service keeps no record of its decisions")
    explainer = fast_path.explainer
    explainer.judge = desk.service.explain
    slow = {"slow_nodes": found} if (found := explainer.slow_nodes()) else {}
    if pid is not None:
        return {"processes": [desk.in_loop(lambda: explainer.explain(pid, address))], **slow}

    def group() -> dict[str, Any]:
        targets = list(desk.service.components.tracking.targets.values())
        chosen = [t for t in targets if within_cgroup(t.cgroup, str(cgroup))]
        chosen.sort(key=lambda target: -target.rss_bytes)
        return {
            "cgroup": cgroup,
            "targets": len(chosen),
            "left_out": max(0, len(chosen) - MOST_EXPLAINED),
            "processes": [explainer.explain(t.pid, None) for t in chosen[:MOST_EXPLAINED]],
        }

    return {**desk.in_loop(group), **slow}


def _set(desk: ControlContext, peer: Peer, args: Mapping[str, Any]) -> Any:
    key = args.get("key")
    if key is None or "value" not in args:
        raise RequestError(ErrorKind.MALFORMED, "set needs a key and a value")
    applied = desk.in_loop(
        lambda: desk.service.reconfigure(with_values(desk.service.config, {key: args["value"]}))
    )
    changed, restart = list(applied.changed), list(applied.restart)
    log.info(
        logfmt(
            event="key_set",
            uid=peer.uid,
            pid=peer.pid,
            key=key,
            changed=",".join(changed) or "nothing",
            after_restart=",".join(restart) or "nothing",
        )
    )
    desk.feed.tell({"kind": "set", "time": time.time(), "key": key, "value": args["value"]})
    return {"changed": changed, "restart": restart, "files": list(desk.service.config.files)}


def _reload(desk: ControlContext, peer: Peer, args: Mapping[str, Any]) -> Any:
    del args
    log.info(logfmt(event="reload_asked", uid=peer.uid, pid=peer.pid))
    result = desk.in_loop(desk.service.reload)
    if not result.ok:
        raise RequestError(ErrorKind.REFUSED, result.reason)
    return {"changed": list(result.applied.changed), "restart": list(result.applied.restart)}


def _events(desk: ControlContext, peer: Peer, args: Mapping[str, Any]) -> Any:
    del desk, peer, args
    return {"streaming": True}


REQUESTS: Final[dict[str, Command]] = {
    "version": Command(_version, changes=False),
    "status": Command(_status, changes=False, args={"hottest": (bool,)}),
    "events": Command(_events, changes=False, streams=True),
    "pause": Command(_pause, changes=True, args={"reason": (str,)}),
    "resume": Command(_resume, changes=True),
    # Addresses of other users' processes are nothing for readers.
    "explain": Command(
        _explain, changes=True, args={"pid": (int,), "cgroup": (str,), "address": (int,)}
    ),
    "reload": Command(_reload, changes=True),
    "undo": Command(_undo, changes=True),
    "set": Command(_set, changes=True, args={"key": (str,), "value": (object,)}),
}
