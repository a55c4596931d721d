# SPDX-License-Identifier: Apache-2.0
"""Writes what repeats the configuration's keys and the metrics: generate.py [--check].

`config/tierd.toml` (every key with its default), `config/tierd.schema.json`, and in
`docs/reference/config.md` the table of profiles and the tables of keys; in
`docs/reference/metrics.md` the table of metrics; and `docs/reference/tuning.md`, the tuning
constants that no key sets. With `--check` nothing is written, and the exit status is 1 if a file
is not what it would be.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tierd.config.files import PROFILES
from tierd.config.model import Config
from tierd.config.schema import REQUIRED, Option, Section, options_of
from tierd.config.whole import as_table, loads, schema, toml_value
from tierd.core import tuning
from tierd.core.overrides import TopologyOverrides
from tierd.observe.metrics.families import FAMILIES

ROOT = Path(__file__).resolve().parents[1]
HEAD = """\
# SPDX-License-Identifier: Apache-2.0
#
# tierd configuration. Every key is here with its default value.
#
# Quantities carry their unit: sizes "64MiB" or "64MB", rates "200MB/s", times
# "500ms", shares "5%". Files conf.d/*.toml beside this one are read after it in
# the order of their names, a later value replacing an earlier one.
# `tierd config check` says whether all is well; docs/reference/config.md explains each key.
#
# Made by config/generate.py from the keys of daemon/tierd/config.
"""
EXAMPLES = {
    "rule": """\
Replace the next line with one [[rule]] table per rule; the first that matches a process counts:
  [[rule]]
  name = "database"
  match = { cgroup = "/system.slice/postgresql.service" }
  deny = false
  fast_min = "30%"
  fast_max = "80%"
  rate_limit = "50MB/s\"""",
    "heat.memory": 'For example:\n  memory = "1GiB"',
    "targets.match": """\
For example:
  match = { any = [ { exe = "redis-server" }, { cgroup = "/kubepods.slice" } ] }
Keys: pid, exe, cmdline, cgroup, uid, min_rss, all, any, not (docs/operate/targets.md).""",
    "topology.tiers": """\
Tiers, fastest first, where the host's own ranking is wrong. Replace the next
line with one [[topology.tiers]] table per tier:
  [[topology.tiers]]
  name = "dram"
  nodes = [0]
  kind = "dram\"""",
    "topology.nodes": """\
Numbers that the host does not tell, or tells wrongly, by node. For example:
  [topology.nodes.1]
  latency = "430ns"
  bandwidth = "20GB/s"
  kind = "cxl\"""",
}
"""What stands above a key besides its purpose."""

TUNING_HEAD = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
# Tuning constants

Numbers that tune decisions and that no configuration key sets. They are declared in
`daemon/tierd/core/tuning`; `tierd config show --internal` prints those in force, and
`tierd replay --set internal.scan.warmup_scans=8` replays a recording with another value.
"assumption" as evidence says that nobody has measured whether the value is a good one; trials.md
is [research/lab-notebook/trials.md](../research/lab-notebook/trials.md). The
sensitivity is the share of decisions that half or twice the value changes in the golden
recordings, whichever is larger ([sensitivity.md](../research/benchmarks/sensitivity.md)).

Made by config/generate.py.
"""


def sections() -> Iterator[tuple[str, str, dict[str, tuple[str, Option]]]]:
    """Path, purpose and options of each table that is a section, in the order of the file."""

    def walk(path: str, purpose: str, cls: type[Any]) -> Any:
        options = options_of(cls)
        yield path, purpose, options
        for key, (_, made) in options.items():
            if isinstance(made.kind, Section):
                yield from walk(f"{path}.{key}".lstrip("."), made.doc, made.kind.cls)

    yield from walk("", "", Config)


def comment(text: str) -> str:
    """Lines of a comment; what is indented stays as it is."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line] if line.startswith("  ") else textwrap.wrap(line, 97)
    return "".join(f"# {line}\n" for line in lines)


def example_file() -> str:
    """The text of config/tierd.toml."""
    table = as_table(Config())
    parts = [HEAD]
    for path, purpose, options in sections():
        values = table
        for step in filter(None, path.split(".")):
            values = values[step]
        own = {k: made for k, (_, made) in options.items() if not isinstance(made.kind, Section)}
        if path == "topology":
            continue
        if path and own:
            parts.append(f"\n{comment(purpose)}[{path}]\n")
        elif own:
            parts.append("\n")
        for key, made in own.items():
            name = f"{path}.{key}".lstrip(".")
            if name == "topology":
                continue
            example = comment(EXAMPLES[name]) if name in EXAMPLES else ""
            parts.append(comment(made.doc) + example)
            # What may be left out has no default to show.
            parts.append(f"{key} = {toml_value(values[key])}\n" if key in values else "")
    parts.append(f"\n[topology]\n{comment(EXAMPLES['topology.tiers'])}tiers = []\n")
    for key in ("exclude", "gpu_nodes"):
        made = options_of(TopologyOverrides)[key][1]
        parts.append(f"{comment(made.doc)}{key} = {toml_value(made.default)}\n")
    parts.append(f"{comment(EXAMPLES['topology.nodes'])}[topology.nodes]\n")
    return "".join(parts)


def key_tables(manual: str) -> str:
    """docs/reference/config.md with its tables of keys made anew; what is between them stays."""
    from tierd.config.rules import RuleConfig

    found = {f"[{path}]" if path else "": options for path, _, options in sections()}
    found["[[rule]]"] = options_of(RuleConfig)

    def table(match: re.Match[str]) -> str:
        title = match["title"].strip("`")
        options = found.pop("" if title == "At the top" else title, None)
        if options is None:
            return match[0]
        rows = ""
        for key, (_, made) in options.items():
            if isinstance(made.kind, Section) or key == "topology":
                continue
            default = "required" if made.default is REQUIRED else _shown(made)
            rows += f"| `{key}` | {default} | {made.kind.about} | {made.doc} |\n"
        return f"### {match['title']}\n{match['text']}{match['head']}{rows}"

    made = re.sub(
        r"### (?P<title>[^\n]*)\n(?P<text>(?:(?!### |\| key)[^\n]*\n)*)"
        r"(?P<head>\| key \| default \|[^\n]*\n\|---[^\n]*\n)(?:\|[^\n]*\n)*",
        table,
        manual,
    )
    missing = [title for title, options in found.items() if _plain(options)]
    if missing:
        raise SystemExit(f"docs/reference/config.md has no table for {', '.join(missing)}")
    return made


def _plain(options: dict[str, tuple[str, Option]]) -> bool:
    return any(not isinstance(made.kind, Section) for _, made in options.values())


def _shown(made: Option) -> str:
    return "" if made.default is None else f"`{toml_value(made.default)}`"


def profile_table(manual: str) -> str:
    """docs/reference/config.md with its table of profiles made anew."""
    names = ("cautious", "balanced", "aggressive")
    tables = [as_table(loads(f'profile = "{name}"')) for name in names]
    keys: dict[str, None] = {}

    def walk(part: dict[str, Any], path: str) -> None:
        for key, value in part.items():
            if isinstance(value, dict):
                walk(value, f"{path}{key}.")
            else:
                keys[path + key] = None

    for profile in PROFILES.values():
        walk(profile, "")
    order = list(_flat(tables[0]))
    rows = "".join(
        f"| `{key}` | {' | '.join(f'`{toml_value(_flat(table)[key])}`' for table in tables)} |\n"
        for key in sorted(keys, key=order.index)
    )
    head = "| key | cautious | balanced | aggressive |\n|---|---|---|---|\n"
    return re.sub(re.escape(head) + r"(?:\|[^\n]*\n)*", lambda _: head + rows, manual)


def _flat(table: dict[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{path}{key}.")
        else:
            flat[path + key] = value
    return flat


def tuning_manual() -> str:
    """The text of docs/reference/tuning.md."""
    parts = [TUNING_HEAD]
    section = ""
    for each in tuning.fields():
        of, _, _ = each.name.partition(".")
        if of != section:
            section = of
            about = (type(tuning.SECTIONS[of]).__doc__ or "").strip()
            parts.append(
                f"\n## {of}\n\n{about}\n\n| constant | value | meaning | evidence | sensitivity |\n"
                "|---|---|---|---|---|\n"
            )
        cells = (f"`{each.name}`", f"{_plain_value(each.default)} {each.unit}", each.meaning)
        parts.append(f"| {' | '.join((*cells, each.evidence, each.sensitivity))} |\n")
    return "".join(parts)


def _plain_value(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(_plain_value(each) for each in value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def metrics_table(manual: str) -> str:
    """docs/reference/metrics.md with its table of metric families made anew."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in FAMILIES.values():
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.name}` | {family.type} | {labels} | {family.help} |")
    table = "\n".join(rows) + "\n"
    return re.sub(r"\| metric \| type [^\n]*\n(?:\|[^\n]*\n)*", lambda _: table, manual)


def main() -> int:
    """0 if all is as it should be, or was written."""
    parser = argparse.ArgumentParser(description="write what repeats the configuration's keys")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    args = parser.parse_args()
    manual = ROOT / "docs/reference/config.md"
    metrics = ROOT / "docs/reference/metrics.md"
    texts = {
        metrics: metrics_table(metrics.read_text()),
        ROOT / "config/tierd.toml": example_file(),
        ROOT / "config/tierd.schema.json": json.dumps(schema(), indent=2) + "\n",
        manual: profile_table(key_tables(manual.read_text())),
        ROOT / "docs/reference/tuning.md": tuning_manual(),
    }
    stale = [p for p, text in texts.items() if not p.exists() or p.read_text() != text]
    for path in stale:
        if args.check:
            print(f"{path.relative_to(ROOT)} is not what config/generate.py makes", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(texts[path])
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
