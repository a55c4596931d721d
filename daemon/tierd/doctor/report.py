# SPDX-License-Identifier: Apache-2.0
"""From findings to a verdict, and both as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tierd.core.errors import ExitCode
from tierd.doctor.findings import Finding, Group, Status

SCHEMA_VERSION: Final = 1
"""Raised when a key of the JSON changes its meaning or goes; new keys do not raise it."""

SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "damon": ("damon.sysfs", "damon.vaddr", "damon.free"),
    "scan": ("module.loaded",),
    "pmu": ("bpf.pmu",),
    "neoprof": ("neoprof.card",),
}
"""Source → the probes that must say yes for it. Faults alone do not tell what is hot."""
MOVER: Final = "move_pages"
TIERS: Final = "tiers"


@dataclass(frozen=True, slots=True)
class Report:
    """All findings and what follows from them.

    Attributes:
        findings: in the order of the report.
        exit_code: OK, NOTHING_TO_DO or UNAVAILABLE.
        summary: one sentence.
        sources: names of the sources that could run.
    """

    findings: tuple[Finding, ...]
    exit_code: ExitCode
    summary: str
    sources: tuple[str, ...]


def judge(findings: Sequence[Finding]) -> Report:
    """What the findings mean: tierd runs with a source, a mover and two tiers."""
    status = {finding.id: finding.status for finding in findings}
    sources = tuple(
        name
        for name, needs in SOURCES.items()
        if all(status.get(need) is Status.YES for need in needs)
    )
    conflicts = sum(finding.status is Status.CONFLICT for finding in findings)
    also = f"; {conflicts} conflict{'' if conflicts == 1 else 's'}" if conflicts else ""
    if status.get(TIERS) is Status.NO:
        code, summary = (
            ExitCode.NOTHING_TO_DO,
            "there is nothing to do here: all memory is one tier",
        )
    else:
        missing = [] if sources else ["no source can see accesses"]
        if status.get(MOVER) is not Status.YES:
            missing.append("move_pages cannot be used")
        if status.get(TIERS) is not Status.YES:
            missing.append("the memory tiers are not known")
        code, summary = ExitCode.OK, f"tierd can run here, with {', '.join(sources)}"
        if missing:
            code, summary = ExitCode.UNAVAILABLE, f"tierd cannot run here: {'; '.join(missing)}"
    return Report(tuple(findings), code, summary + also, sources)


def as_text(report: Report) -> str:
    """The report for people."""
    lines = [report.summary]
    words = max(len(status.value) for status in Status)
    width = max((len(finding.title) for finding in report.findings), default=0)
    for group in Group:
        members = [finding for finding in report.findings if finding.group is group]
        if not members:
            continue
        lines += ["", group.value]
        for finding in members:
            lines.append(
                f"  {finding.status.value:{words}}  {finding.title:{width}}  {finding.reason}"
            )
            if finding.hint and finding.status in (Status.NO, Status.CONFLICT):
                lines.append(f"  {'':{words}}  {'':{width}}  → {finding.hint}")
    return "\n".join(lines) + "\n"


def as_json(report: Report) -> dict[str, Any]:
    """The report for scripts, ready for json.dumps."""
    return {
        "schema": SCHEMA_VERSION,
        "exit_code": int(report.exit_code),
        "summary": report.summary,
        "sources": list(report.sources),
        "findings": [
            {
                "id": finding.id,
                "group": finding.group.name.lower(),
                "title": finding.title,
                "status": finding.status.value,
                "reason": finding.reason,
                "hint": finding.hint,
            }
            for finding in report.findings
        ],
    }
