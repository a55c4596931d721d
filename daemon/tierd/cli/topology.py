# SPDX-License-Identifier: Apache-2.0
"""`tierd topology`: show the memory tiers of this host, or of a captured one."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tierd import topology
from tierd.core.errors import ExitCode, UnavailableError
from tierd.core.overrides import TopologyOverrides
from tierd.core.tiermap import TierMap
from tierd.topology.render import as_json, as_text, capture, unpack


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd topology`."""
    parser.add_argument("--json", action="store_true", help="print JSON (docs/operate/topology.md)")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="read sys/ and proc/ below DIR, or a file that --capture wrote (default: /)",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="apply FILE's overrides")
    parser.add_argument(
        "--capture",
        action="store_true",
        help="print the files that were read, to send along with a report",
    )


def run(args: argparse.Namespace) -> int:
    """Print the map; returns the exit code."""
    if args.capture:
        print(capture(args.root), end="")
        return ExitCode.OK
    tiers = read_root(args.root, _overrides(args.config))
    if args.json:
        print(json.dumps(as_json(tiers), indent=2))
    else:
        print(as_text(tiers), end="")
    return ExitCode.OK


def read_root(root: Path, overrides: TopologyOverrides | None = None) -> TierMap:
    """Read a tree, or a captured text that is unpacked for the time of reading.

    Raises:
        UnavailableError: `root` is neither, or holds no topology.
    """
    if not root.exists():
        raise UnavailableError(f"there is no {root}", hint="--root takes a folder or a file")
    if root.is_dir():
        return topology.read(root, overrides)
    try:
        text = root.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(f"cannot read {root} as a captured topology: {error}") from error
    import tempfile  # for captured files alone

    with tempfile.TemporaryDirectory(prefix="tierd-topology-") as folder:
        return topology.read(unpack(text, Path(folder)), overrides)


def _overrides(config: Path | None) -> TopologyOverrides | None:
    if config is None:
        return None
    # Imported here: the configuration is needed by this option alone.
    from tierd.config.whole import load

    return load(config).topology
