# SPDX-License-Identifier: Apache-2.0
"""`tierd config`: check the configuration, show it, or tell what it changes."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from tierd.config.files import DEFAULT_PATH
from tierd.config.model import Config, heat_bytes
from tierd.config.whole import as_table, differences, dumps, load, loads, schema, toml_value
from tierd.core.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd config`."""
    parser.add_argument(
        "action",
        choices=("check", "show", "diff", "schema"),
        help="check: are the files valid; show: all keys with their values; diff: the keys "
        "that differ from the profile's defaults, or from another file (exit status 1 if any "
        "does); schema: the JSON schema, for editors",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"main file; conf.d/*.toml beside it is merged in (default: {DEFAULT_PATH})",
    )
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="with diff: the other main file"
    )
    parser.add_argument(
        "--internal",
        action="store_true",
        help="with show: the tuning constants, which no key sets, in place of the keys",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="with check: also say which processes of this host each matcher matches now; one that "
        "matches none is a warning, and no error",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Do what was asked; a mistake in a file is a ConfigError, exit code 3."""
    if args.live and args.action != "check":
        print("tierd config: --live goes with check", file=sys.stderr)
        return ExitCode.USAGE
    if args.action == "schema":
        print(json.dumps(schema(), indent=2))
        return ExitCode.OK
    if args.action == "show" and args.internal:
        return _show_internal(args)
    found = load(args.config)
    if args.action == "diff":
        return _diff(found, args)
    if args.action == "show":
        print(json.dumps(as_table(found), indent=2) if args.json else _shown(found))
        return ExitCode.OK
    return _check(found, args)


def _shown(found: Config) -> str:
    """The configuration as a file, with what follows from the host as a comment."""
    text = dumps(found)
    if found.heat.memory_bytes is not None:
        return text
    mib = heat_bytes(found) >> 20
    comment = f"# memory: a 2048th of the host's, 64MiB at least: {mib}MiB on this host"
    return text.replace("[heat]\n", f"[heat]\n{comment}\n", 1)


def _check(found: Config, args: argparse.Namespace) -> int:
    """Files that were read are right; `--live` says what they mean here."""
    told: dict[str, Any] = {"ok": True, "files": list(found.files)}
    text = f"configuration is valid: {', '.join(found.files) or 'built-in defaults'}"
    if args.live:
        from tierd.cli import _live  # needs what the other checks do not

        seen = _live.examine(found, args.config)
        if args.json:
            told["live"] = _live.as_json(seen, found)
        else:
            text += f"\n{_live.as_text(seen, found)}"
    print(json.dumps(told) if args.json else text)
    return ExitCode.OK


def _show_internal(args: argparse.Namespace) -> int:
    """Every tuning constant with all that is known of it."""
    from tierd.core import tuning

    if args.json:
        print(json.dumps([dataclasses.asdict(each) for each in tuning.fields()], indent=2))
    for each in () if args.json else tuning.fields():
        print(f"{each.name} = {each.value} {each.unit}")
        print(f"    {each.meaning}")
        print(f"    evidence: {each.evidence}; sensitivity: {each.sensitivity}")
    return ExitCode.OK


def _diff(found: Config, args: argparse.Namespace) -> int:
    """Lines `key = old → new`."""
    if args.against:
        other = load(args.against)
    else:
        other = loads(f"profile = {toml_value(found.profile)}\n")
    told = differences(other, found)
    if args.json:
        print(json.dumps([{"key": d.key, "old": d.old, "new": d.new} for d in told], indent=2))
    for each in () if args.json else told:
        old, new = ("-" if value is None else toml_value(value) for value in (each.old, each.new))
        print(f"{each.key} = {old} → {new}")
    return ExitCode.FAILURE if told else ExitCode.OK
