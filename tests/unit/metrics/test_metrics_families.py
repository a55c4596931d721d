# SPDX-License-Identifier: Apache-2.0
"""Names: the manual, the dashboard and the alert rules speak of what is really exported."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promtools
import pytest
from desk import make_desk
from loopbench import interrupt_at
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tierd.observe.metrics.families import FAMILIES, Type
from tierd.observe.metrics.server import make_registry

ROOT = Path(__file__).parents[3]
RULES = ROOT / "config/prometheus/tierd.rules.yml"
DASHBOARD = json.loads((ROOT / "config/grafana/tierd.json").read_text())
PROMTOOL = promtools.find("promtool")
NAME = re.compile(r"\b(?:tierd|process)_[a-z_]+\b")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is served after a few ticks of a service that moved pages."""
    bench, desk = make_desk(tmp_path_factory.mktemp("desk"))
    bench.source.on_poll = interrupt_at(3)
    bench.service.run()
    registry = make_registry(lambda: desk.state.values.snapshot, [desk.figures])
    return generate_latest(registry).decode()


def promtool(*args: str, **options: Any) -> str:
    assert PROMTOOL is not None, "promtool is in the package prometheus (config/setup.sh)"
    done = subprocess.run(
        [PROMTOOL, *args], capture_output=True, text=True, timeout=600, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_names_follow_the_naming_guide():
    for family in FAMILIES.values():
        assert re.fullmatch(r"tierd_[a-z][a-z_]*[a-z]", family.name)
        assert family.name.endswith("_total") == (family.type is Type.COUNTER)
        assert family.help.endswith(".")
        assert not {"pid", "address", "comm"} & set(family.labels)
        assert not re.search(r"_(ms|us|ns|kb|mb|kib|percent)(_|$)", family.name)


def test_promtools_lint_finds_nothing(exported: str):
    assert promtool("check", "metrics", input=exported) == ""


def test_every_family_is_exported(exported: str):
    served = set(re.findall(r"^# TYPE (\S+)", exported, re.MULTILINE))
    assert FAMILIES.keys() <= served


def test_a_summary_is_served_as_one(exported: str):
    name = "tierd_move_page_duration_seconds"
    (family,) = (x for x in text_string_to_metric_families(exported) if x.name == name)
    assert family.type == "summary"
    assert [(sample.name.removeprefix(name), sample.labels) for sample in family.samples] == [
        ("", {"quantile": "0.5"}),
        ("", {"quantile": "0.99"}),
        ("", {"quantile": "1"}),
        ("_sum", {}),
        ("_count", {}),
    ]


def series_names(exported: str) -> set[str]:
    """All names that a query may use: samples, not families (a histogram has three)."""
    names = set(FAMILIES) - {n for n, f in FAMILIES.items() if f.type is Type.HISTOGRAM}
    for family in text_string_to_metric_families(exported):
        names |= {sample.name for sample in family.samples}
    return names


def queries() -> Iterator[str]:
    """Every expression of the dashboard, its variables filled in."""
    found = [note["expr"] for note in DASHBOARD["annotations"]["list"]]
    found += [
        target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])
    ]
    for query in found:
        yield query.replace("$__rate_interval", "5m").replace("$instance", ".*")


def labels_of(query: str) -> Iterator[tuple[str, str]]:
    for name, matchers in re.findall(r"\b(tierd_[a-z_]+)\{([^}]*)\}", query):
        for label in re.findall(r"([a-z_]+)(?:=~|!=|=|!~)", matchers):
            yield name, label


def test_the_dashboard_asks_only_for_what_is_exported(exported: str):
    names = series_names(exported)
    asked = list(queries())
    assert len(asked) > 25
    for query in asked:
        assert set(NAME.findall(query)) <= names, query
        for name, label in labels_of(query):
            family = FAMILIES[re.sub(r"_(bucket|sum|count)$", "", name)]
            of_type = {Type.HISTOGRAM: "le", Type.SUMMARY: "quantile"}.get(family.type, "")
            assert label in {*family.labels, "instance", "job", of_type}, query


def test_the_dashboards_queries_are_valid(tmp_path: Path):
    rules = [{"record": f"q:{n}", "expr": query} for n, query in enumerate(queries())]
    file = tmp_path / "queries.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(file))


def test_the_dashboards_panels_have_places_of_their_own():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_every_family_an_operator_asks_for_is_on_the_dashboard():
    shown = set(NAME.findall(" ".join(queries())))
    left_out = {name for name in FAMILIES if name not in shown and name + "_bucket" not in shown}
    # Numbers that a panel shows in another form, or that only alerts and people use.
    assert left_out == {
        "tierd_build_info",
        "tierd_dry_run",
        "tierd_migrated_pages_total",
        "tierd_move_seconds_total",
        "tierd_cgroup_targets",
        "tierd_rule_targets",
        "tierd_new_processes_dropped_total",
        "tierd_undo_forgotten_folios_total",
        "tierd_config_last_reload_success_timestamp_seconds",
        "tierd_config_reloads_total",
        "tierd_source_discarded_reports_total",
        "tierd_source_unwatched_tables_total",
        "tierd_source_passed_over_total",
        "tierd_source_untracked_pages_total",
        "tierd_recorded_ticks_total",
        "tierd_recording_active",
        "tierd_folios_split_total",
        "tierd_folio_splits_failed_total",
        "tierd_gpu_memory_bytes",
        "tierd_heat_half_life_seconds",
        "tierd_page_out_left_out_chunks",
    } | {name for name in FAMILIES if name.startswith("tierd_cost_")}


def test_the_alert_rules_are_valid_and_ask_only_for_what_is_exported(exported: str):
    assert "14 rules found" in promtool("check", "rules", str(RULES))
    expressions = re.sub(r"summary:.*|description:[^-]*", "", RULES.read_text())
    asked = set(NAME.findall(expressions))
    assert len(asked) > 12
    assert asked <= series_names(exported)


def test_each_alert_fires_on_what_it_is_for():
    assert "SUCCESS" in promtool("test", "rules", str(Path(__file__).parent / "rules_test.yml"))
