# SPDX-License-Identifier: Apache-2.0
"""Every metric family that tierd serves: name, type, labels, meaning.

No label holds a process number, an address or a name that a process chose for itself;
control groups are distinguished up to a configured number. Names are by Prometheus' naming guide
(prefix, base unit, `_total` for counters). The table in docs/reference/metrics.md, the dashboard
and the alert rules are compared with this one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Type(enum.StrEnum):
    """How a figure behaves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family; `name` as Prometheus sees it."""

    name: str
    type: Type
    help: str
    labels: tuple[str, ...] = ()


_ALL: Final[dict[str, Family]] = {}


def _counter(name: str, help_: str, *labels: str) -> str:
    return _add(Family(name, Type.COUNTER, help_, labels))


def _gauge(name: str, help_: str, *labels: str) -> str:
    return _add(Family(name, Type.GAUGE, help_, labels))


def _summary(name: str, help_: str, *labels: str) -> str:
    return _add(Family(name, Type.SUMMARY, help_, labels))


def _add(family: Family) -> str:
    if family.name in _ALL:
        raise ValueError(f"two families are called {family.name}")
    _ALL[family.name] = family
    return family.name


PAIR: Final = ("direction", "source_tier", "dest_tier")

BUILD_INFO = _gauge("tierd_build_info", "1, with the version as a label.", "version")
START_TIME = _gauge("tierd_start_time_seconds", "When this tierd started, Unix time.")
DRY_RUN = _gauge("tierd_dry_run", "1 where every step but the moves is taken.")

TICKS = _counter("tierd_ticks_total", "Ticks of the control loop.")
TICK_SECONDS = _add(Family("tierd_tick_duration_seconds", Type.HISTOGRAM, "Time that a tick took."))
LAST_TICK = _gauge("tierd_last_tick_timestamp_seconds", "When the last tick ended, Unix time.")
LAST_DECISION = _gauge(
    "tierd_last_decision_timestamp_seconds", "When the policy was asked last, Unix time."
)
PAUSED = _gauge("tierd_paused", "1 while an operator's pause is in force.")
PAUSES = _counter("tierd_pauses_total", "Times that an operator paused moving.")

STANDS_DOWN = _gauge("tierd_stands_down", "1 while nothing is moved because moving does not pay.")
STOOD_DOWN = _counter("tierd_stood_down_total", "Times that moving was found not to pay.")
PART_SEEN = _gauge(
    "tierd_predicted_effect_ratio",
    "Requests to slow memory that ended for each predicted access; below 0 moves do harm.",
)

CAPACITY = _gauge("tierd_tier_capacity_bytes", "Memory of a node.", "tier", "node")
FREE = _gauge("tierd_tier_free_bytes", "Free memory of a node.", "tier", "node")
RESERVE = _gauge(
    "tierd_tier_reserve_bytes", "What the kernel keeps free on a node for itself.", "tier", "node"
)

RANK = _gauge("tierd_tier_rank", "Place of a tier, 0 is the first for hot pages.", "tier")

MOVED_PAGES = _counter("tierd_migrated_pages_total", "Pages of 4 KiB that changed tier.", *PAIR)
MOVED_BYTES = _counter("tierd_migrated_bytes_total", "Bytes that changed tier.", *PAIR)
PLANNED_PAGES = _counter(
    "tierd_planned_pages_total", "Pages that plans asked to move.", "direction"
)
FATES = _counter("tierd_migration_results_total", "Planned pages by what became of them.", "result")
ERRORS = _counter("tierd_move_errors_total", "Pages not moved, by error number.", "errno")
FOLIOS_SPLIT = _counter("tierd_folios_split_total", "Folios of 2 MiB split into 4 KiB pages.")
SPLITS_FAILED = _counter(
    "tierd_folio_splits_failed_total",
    "Folios that were not split, by why.",
    "result",
)
LEFT_ALONE = _gauge(
    "tierd_left_alone_pages", "Pages not tried now, as they, or their mapping, refused.", "result"
)
TRIED_AGAIN = _counter(
    "tierd_tried_again_pages_total", "Folios tried again after a while, by result.", "result"
)
REFUSALS_DROPPED = _counter(
    "tierd_refusals_dropped_total", "Folios and mappings that refused, forgotten for want of space."
)
LIMITED_TARGETS = _gauge(
    "tierd_limited_targets", "Processes with less than the whole limit, as their moves failed."
)
RETRIES = _counter("tierd_move_retries_total", "Busy pages that were tried again.")
MOVE_SECONDS = _counter("tierd_move_seconds_total", "Time spent in moving.")
MOVE_PAGE = _summary(
    "tierd_move_page_duration_seconds", "Time of move_pages calls for each page of 4 KiB."
)
MOVE_CPU = _counter("tierd_move_cpu_seconds_total", "CPU time spent in moving.")
HELD_BACK = _counter(
    "tierd_rejected_pages_total", "Pages that were looked at and not planned.", "reason"
)
PHASE_CHANGES = _counter(
    "tierd_phase_changes_total",
    "Phase changes that scans detected; for devices, epochs restarted after bursts of misses.",
    "detector",
)
PING_PONG = _counter(
    "tierd_ping_pong_pages_total", "Pages that moved again within a minute, whoever moved them."
)
HOST_MOVED = _counter(
    "tierd_host_migrated_pages_total",
    "Pages that changed node on this host, by who moved them: kernel, tierd, others.",
    "mover",
)

BUDGET_RATE = _gauge("tierd_budget_bytes_per_second", "Configured limit of moving.")
BUDGET_SHARE = _gauge("tierd_budget_ratio", "Share of that limit in force after back-off.")
BUDGET_GRANTED = _counter("tierd_budget_granted_bytes_total", "Bytes that plans might move.")

SAMPLES = _counter("tierd_samples_total", "Access records taken in.", "source")
LOST = _counter("tierd_lost_samples_total", "Access records known to be lost.", "source")
SOURCE_ACTIVE = _gauge("tierd_source_active", "1 for the source in use.", "source")
SOURCE_AVAILABLE = _gauge(
    "tierd_source_available", "0 for a source that was tried and refused, else 1.", "source"
)
SAMPLING_INTERVAL = _gauge(
    "tierd_source_sampling_interval_seconds",
    "For how long before a scan of an accessed bit accesses count, as measured.",
    "source",
)
SCAN_INTERVAL = _gauge(
    "tierd_source_scan_interval_seconds",
    "Time between two scans of a page's accessed bit, as measured.",
    "source",
)
REPORTS_LEFT_OUT = _counter(
    "tierd_source_discarded_reports_total",
    "Reports that distinguished no page from another and were not counted.",
    "source",
)
UNWATCHED = _counter(
    "tierd_source_unwatched_tables_total",
    "Page tables that a scan passed over, because there was no memory for their histories.",
    "source",
)
PASSED_OVER = _counter(
    "tierd_source_passed_over_total",
    "Times that a scan passed over a process for a while, because its pages could not be read.",
    "source",
)
UNTRACKED = _counter(
    "tierd_source_untracked_pages_total",
    "Pages that were scanned and of which the kernel kept no flag (no_flag), or not what other"
    " processes do with them (shared).",
    "reason",
)
HEAT_PAGES = _gauge("tierd_heat_tracked_pages", "Folios in the heat table.")
HEAT_CAPACITY = _gauge("tierd_heat_capacity_pages", "Most folios the heat table holds.")
HEAT_BYTES = _gauge("tierd_heat_memory_bytes", "Memory of the heat table.")
HEAT_HALF_LIFE = _gauge(
    "tierd_heat_half_life_seconds",
    "Half-life of heat: heat.half_life, or longer where scans take long.",
)
HEAT_EVICTED = _counter(
    "tierd_heat_evicted_pages_total", "Folios that gave way because the heat table was full."
)
HEAT_DROPPED = _counter("tierd_heat_dropped_records_total", "Records not counted.", "reason")
WALKED = _counter("tierd_residency_pages_total", "Pages whose node was asked from the kernel.")

TARGETS = _gauge("tierd_targets", "Processes that are watched.")
LEFT_OUT = _gauge("tierd_targets_over_limit", "Processes that match but exceed the limit.")
NOT_ANSWERING = _gauge(
    "tierd_targets_not_answering",
    "Processes that are left out as the kernel tells nothing of them.",
)
UNJUDGED = _gauge(
    "tierd_targets_unjudged",
    "Processes left alone, as tierd cannot tell whether a matcher matches them.",
)
GIVEN_UP = _counter(
    "tierd_reads_given_up_total",
    "Reads of processes' files, and calls about them, that had no answer in time.",
)
UNDO_FORGOTTEN = _counter(
    "tierd_undo_forgotten_folios_total", "Moved folios that `tierd undo` cannot put back."
)
NEW_PROCESSES_DROPPED = _counter(
    "tierd_new_processes_dropped_total",
    "Processes that began when too many had: the refresh finds them, not sooner.",
)
SKIPPED = _gauge("tierd_skipped_pages", "Targets' pages that may not be moved.", "reason")
GROUP_TARGETS = _gauge("tierd_cgroup_targets", "Processes watched in a control group.", "cgroup")
GROUP_RESIDENT = _gauge(
    "tierd_cgroup_resident_bytes", "Resident memory of a group's watched processes.", "cgroup"
)
GROUP_TIER = _gauge(
    "tierd_cgroup_tier_bytes", "Movable memory of a group's processes.", "cgroup", "tier"
)
STRAINED = _gauge(
    "tierd_pressured_cgroups", "Control groups that wait for memory or a CPU too much of the time."
)
STRAIN_DEFERRED = _counter(
    "tierd_pressure_reads_deferred_total",
    "Reads of control groups' pressure that were put off.",
)
RULE_TARGETS = _gauge("tierd_rule_targets", "Processes watched under a rule.", "rule")
RULE_TIER = _gauge("tierd_rule_tier_bytes", "Movable memory of a rule's processes.", "rule", "tier")
GROUP_MOVED = _counter(
    "tierd_cgroup_migrated_bytes_total",
    "Bytes of a group's processes that changed tier.",
    "cgroup",
    "direction",
)
FOLDED = _gauge("tierd_aggregated_label_values", 'Label values summed up as "other".', "label")

RELOAD_OK = _gauge(
    "tierd_config_last_reload_successful", "1 if the configuration was accepted last time."
)
RELOAD_TIME = _gauge(
    "tierd_config_last_reload_success_timestamp_seconds",
    "When a configuration was accepted last, Unix time.",
)
RELOADS = _counter("tierd_config_reloads_total", "Reloads by result.", "result")
CONFLICT = _gauge(
    "tierd_conflict", "1 where somebody else moves pages or uses what tierd uses.", "conflict"
)

CONTROL_CONNECTIONS = _counter(
    "tierd_control_connections_total", "Connections to the control socket.", "result"
)
CONTROL_REQUESTS = _counter(
    "tierd_control_requests_total", "Requests on the control socket.", "command", "result"
)
EVENTS_DROPPED = _counter(
    "tierd_control_dropped_events_total", "Events not sent because a reader was too slow."
)
SCRAPES_REFUSED = _counter(
    "tierd_metrics_refused_requests_total", "HTTP requests that were refused.", "reason"
)

NODE_LATENCY = _gauge(
    "tierd_node_latency_seconds", "Latency of a node in the last measurement.", "node"
)
NODE_BANDWIDTH = _gauge(
    "tierd_node_stream_bytes_per_second",
    "What a stream of one CPU got of a node in the last measurement.",
    "node",
)
NODE_USUAL_LATENCY = _gauge(
    "tierd_node_usual_latency_seconds", "Median latency of a node while it was as usual.", "node"
)
NODE_USUAL_BANDWIDTH = _gauge(
    "tierd_node_usual_stream_bytes_per_second",
    "Median of what a stream got of a node while it was as usual.",
    "node",
)
NODE_SLOW = _gauge(
    "tierd_node_slow", "1 where a node is slower than usual, by symptom.", "node", "symptom"
)
NODE_PROBES = _counter(
    "tierd_node_probes_total", "Measurements of a node by result.", "node", "result"
)
NODE_PROBE_CPU = _summary(
    "tierd_node_probe_cpu_seconds", "CPU time of a measurement of a node.", "node"
)

PAGE_OUT_ACTIVE = _gauge("tierd_page_out_active", "1 while cold pages may be paged out.")
PAGE_OUT_PAGES = _counter(
    "tierd_page_out_pages_total",
    "4 KiB pages by what became of them when they were to be paged out.",
    "result",
)
PAGE_OUT_LEFT_OUT = _gauge(
    "tierd_page_out_left_out_chunks",
    "Chunks of 16 MiB that are never paged out, as there are too many to remember.",
)
PAGE_OUT_AGE = _gauge(
    "tierd_page_out_age_seconds", "Time without an access after which a page is paged out."
)
PAGE_OUT_LOST = _gauge(
    "tierd_page_out_lost_share",
    "Share of one CPU's time that faults on swapped memory cost.",
)
PAGE_OUT_FAULT = _gauge("tierd_page_out_fault_seconds", "Measured time of such a fault.")

MEMORY_ERRORS = _counter(
    "tierd_memory_errors_total", "Memory errors that the kernel reported.", "node", "kind"
)
MEMORY_ERROR_EVENTS = _counter(
    "tierd_memory_error_reports_total",
    "Reports of memory errors that were lost, malformed or not logged.",
    "result",
)

RECORDING = _gauge("tierd_recording_active", "1 while ticks are recorded.")
RECORDED_TICKS = _counter("tierd_recorded_ticks_total", "Ticks in the recording.")
RECORDED_BYTES = _counter("tierd_recorded_bytes_total", "Bytes of the recording.")
RECORDING_DROPPED = _counter(
    "tierd_recording_dropped_ticks_total", "Ticks that the recording lacks."
)

GPU_MEMORY = _gauge("tierd_gpu_memory_bytes", "Memory of a GPU.", "gpu")
GPU_FREE = _gauge("tierd_gpu_free_bytes", "Free memory of a GPU.", "gpu")
GPU_BORROWED = _gauge("tierd_gpu_borrowed_bytes", "Memory of a GPU that others borrowed.", "gpu")
GPU_UNBACKED = _gauge(
    "tierd_gpu_unbacked_bytes",
    "Borrowed memory of a GPU that has no other copy: lost if the GPU is.",
    "gpu",
)
GPU_LENDABLE = _gauge("tierd_gpu_lendable_bytes", "Memory of a GPU that may be borrowed.", "gpu")
GPU_LEASED = _gauge("tierd_gpu_leased_bytes", "Memory of a GPU that borrowers may use now.", "gpu")
GPU_LOST = _gauge("tierd_gpu_lost", "1: the driver says it is gone.", "gpu")
GPU_REVOCATION = _gauge(
    "tierd_gpu_revocation_longest_seconds", "The longest of the last 4096 revocations."
)
GPU_TENANTS = _gauge("tierd_gpu_tenants", "Clients that said where they compute.")
GPU_LAUNCHES = _gauge(
    "tierd_gpu_launches",
    "Launches of the programs here, by whether their parameters tell what they use.",
    "told",
)
GPU_MOVES = _counter("tierd_gpu_moves_total", "Chunk commands by outcome.", "outcome", "what")
GPU_EVENTS = _counter("tierd_gpu_events_total", "Events of lending GPU memory.", "what")
GPU_CONNECTIONS = _counter(
    "tierd_gpu_connections_total", "Connections of GPU programs by outcome.", "outcome", "reason"
)

TIER_LOAD = _gauge(
    "tierd_cost_tier_load_bytes_per_second",
    "What a tier serves, and who says so.",
    "tier",
    "source",
)
TIER_LATENCY = _gauge(
    "tierd_cost_tier_loaded_latency_seconds", "Latency of a tier with its present load.", "tier"
)
COST_PREDICTED = _gauge(
    "tierd_cost_predicted_gain_ratio", "Waiting that all moves were predicted to save, s/s."
)
COST_OBSERVED = _gauge(
    "tierd_cost_observed_gain_ratio", "Waiting that they were observed to save, s/s."
)
COST_MINUTE = _gauge(
    "tierd_cost_last_minute_gain_seconds", "Gain of the last minute's moves over the horizon."
)
COST_CORRELATION = _gauge(
    "tierd_cost_rank_correlation_ratio", "Of predicted with observed gains; absent until known."
)
COST_STANDING = _gauge("tierd_cost_hold", "1 while moves are taken back.")

FAMILIES: Final[dict[str, Family]] = _ALL
"""All of them, by name, in the order they are served."""
