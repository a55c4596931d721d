# SPDX-License-Identifier: Apache-2.0
"""`tierd replay`: another policy or other settings over a recording."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tierd.core import tuning, units
from tierd.core.errors import ExitCode

if TYPE_CHECKING:
    from tierd.observe.recording.reader import Recording
    from tierd.replay.policy import Compared, Replay


SHOWN = 10
"""Differing decisions that are printed without --all."""
DIRECTIONS = ("promoted", "demoted")
ASSUMPTIONS = (
    "accesses are the recorded ones, whatever the pages' places",
    "a planned move succeeds at once, unless the recording has the same move: then its fate",
    "free memory follows from the recorded one and the pages that are elsewhere",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd replay`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the recording")
    parser.add_argument("--policy", metavar="NAME", help="short for --set policy.name=NAME")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another setting, for example policy.hysteresis=0.8, or internal.NAME=VALUE for a "
        "constant that `tierd config show --internal` prints; may be given several times",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="take [policy], [heat], [migration] from FILE"
    )
    parser.add_argument("--all", action="store_true", help="print every differing decision")
    parser.add_argument(
        "--memory",
        default="4GiB",
        metavar="SIZE",
        help="refuse a recording whose heat table may take more (default: 4GiB)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Replay; failure where the same settings do not give the recorded plans."""
    from tierd.replay.settings import split_internal

    settings, internal = split_internal(args.set)
    with tuning.overridden(internal):
        return _run(args, settings, overridden=bool(internal))


def _run(args: argparse.Namespace, given: list[str], *, overridden: bool) -> int:
    from tierd.core.errors import ConfigError
    from tierd.engine.build import make_policy
    from tierd.observe.recording.reader import Recording
    from tierd.replay.policy import Replay
    from tierd.replay.settings import make_change, parse_setting

    settings = [parse_setting(text) for text in given]
    if args.policy is not None:
        settings.insert(0, ("policy.name", args.policy))
    try:
        memory = units.parse_size(args.memory)
    except ValueError as error:
        raise ConfigError("--memory", str(error)) from None
    change = make_change(settings, args.config, internal=overridden)
    recording = Recording(args.file)
    replay = Replay(recording, make_policy, change, memory_bytes=memory)
    differing = []
    for compared in replay:
        if compared.moves_differ or (compared.difference and change is None):
            differing.append(_difference(compared))
            if not (args.all or args.json) and len(differing) > SHOWN:
                differing.pop()
    figures = _figures(recording, replay, changed=change is not None)
    if args.json:
        print(json.dumps({**figures, "differences": differing}))
    else:
        _print(figures, differing, args.file)
    exact = change is not None or not (replay.differing_before_gap or replay.decided.differing)
    return int(ExitCode.OK if exact else ExitCode.FAILURE)


def _difference(compared: Compared) -> dict[str, Any]:
    from tierd.replay.policy import shared_moves

    tick = compared.tick
    return {
        "tick": tick.number,
        "time_s": tick.time_ns / 1e9,
        "what": compared.difference,
        "recorded_moves": len(tick.plan),
        "replayed_moves": len(compared.plan),
        "same_moves": shared_moves(tick.plan, compared.plan),
    }


def _figures(recording: Recording, replay: Replay, *, changed: bool) -> dict[str, Any]:
    found = recording.last
    names = list(dict.fromkeys([*replay.recorded.served, *replay.replayed.served]))
    sides = {}
    for name, side in (("recorded", replay.recorded), ("replayed", replay.replayed)):
        sides[name] = {
            "planned_pages": {name: side.planned[name] for name in DIRECTIONS},
            "moved_pages": {name: side.moved[name] for name in DIRECTIONS},
            "served": {tier: side.share(tier) for tier in names if tier != "unknown"},
            "accesses": float(side.served.total()),
            "accesses_of_unknown_place": float(side.served["unknown"]),
        }
    return {
        "version": recording.meta.version,
        "started": recording.meta.started,
        "dry_run": recording.meta.dry_run,
        "host": dict(recording.meta.host),
        "whole": found.ending.whole,
        "read_bytes": found.ending.offset,
        "cut": found.ending.reason,
        "end": found.end_reason,
        "ticks": replay.ticks,
        "missing_ticks": found.missing,
        "decisions": replay.decisions,
        "decisions_after_gap": replay.after_gap,
        "seconds": replay.seconds,
        "changed": {
            **{key: list(values) for key, values in replay.changed.items()},
            **{
                f"internal.{each.name}": [each.default, each.value]
                for each in tuning.fields()
                if each.value != each.default
            },
        },
        "settings_changed": changed,
        "decisions_that_differ": replay.differing,
        "decisions_whose_moves_differ": replay.moves_differing,
        "fast_tier": replay.fast_tier,
        "resized_folios": replay.resized,
        "parts": _parts(replay),
        **sides,
    }


def _parts(replay: Replay) -> dict[str, Any]:
    """How far components beside the policy decided again as they did."""
    found = {}
    for part in replay.decided.parts:
        first = part.first
        found[part.name] = {
            "decisions": part.decisions,
            "same": part.decisions - part.differing,
            "ended": part.ended,
            "first_difference": None if first is None else dataclasses.asdict(first),
        }
    return found


def _print_parts(parts: dict[str, Any]) -> None:
    for name, part in parts.items():
        print(f"{name}: decisions the same: {part['same']} of {part['decisions']}")
        if part["ended"]:
            print(f"  not to the end: {part['ended']}")
        if (first := part["first_difference"]) is not None:
            print(f"  the first that is not, in tick {first['tick']}: {first['what']:.400}")
            print(f"    recorded {first['recorded']}")
            print(f"    replayed {first['replayed']}")


def _print(figures: dict[str, Any], differing: list[dict[str, Any]], file: Path) -> None:
    dry = ", a dry run" if figures["dry_run"] else ""
    print(
        f"{file}: {figures['decisions']} decisions in {figures['ticks']} ticks, "
        f"{figures['seconds']:.0f} s from {figures['started']}{dry}"
    )
    if not figures["whole"]:
        print(f"  {figures['cut']} after {figures['read_bytes']} bytes: read up to there")
    elif figures["end"] not in ("closed", "the time was up"):
        print(f"  it ended early: {figures['end'] or 'the recorder was killed'}")
    if figures["missing_ticks"]:
        print(
            f"  {figures['missing_ticks']} ticks are missing; heat is not known exactly for "
            f"{figures['decisions_after_gap']} decisions after the first of them"
        )
    for key, (old, new) in figures["changed"].items():
        print(f"  {key}: {old} -> {new}")
    _print_table(figures)
    if not figures["settings_changed"]:
        if not figures["decisions_that_differ"]:
            print("every replayed plan is the recorded one, bit for bit")
        else:
            print(f"{figures['decisions_that_differ']} replayed plans are not the recorded ones")
        same = figures["decisions"] - figures["decisions_that_differ"]
        print(f"policy: decisions the same: {same} of {figures['decisions']}")
        _print_parts(figures["parts"])
    else:
        moves = figures["decisions_whose_moves_differ"]
        print(f"{moves} of {figures['decisions']} plans have other moves")
    for each in differing[:SHOWN] if len(differing) > SHOWN else differing:
        print(
            f"  tick {each['tick']}: {each['recorded_moves']} moves recorded, "
            f"{each['replayed_moves']} replayed, {each['same_moves']} the same ({each['what']})"
        )
    if figures["settings_changed"]:
        print("What the replayed side assumes:")
        for line in ASSUMPTIONS:
            print(f"  - {line}")
        if figures["resized_folios"]:
            print(f"  - {figures['resized_folios']} folios that changed size went back to theirs")


def _print_table(figures: dict[str, Any]) -> None:
    print(f"{'':28}{'recorded':>14}{'replayed':>14}")
    for title, group in (("planned", "planned_pages"), ("moved", "moved_pages")):
        for name in DIRECTIONS:
            pair = [figures[side][group][name] for side in ("recorded", "replayed")]
            label = f"{name} pages, {title}"
            print(f"{label:28}{pair[0]:>14}{pair[1]:>14}")
    for tier in figures["recorded"]["served"]:
        shares = [figures[side]["served"][tier] for side in ("recorded", "replayed")]
        shown = ["-" if share is None else f"{share:.2%}" for share in shares]
        print(f"{'accesses served by ' + tier:28}{shown[0]:>14}{shown[1]:>14}")
