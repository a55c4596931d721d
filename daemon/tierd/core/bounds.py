# SPDX-License-Identifier: Apache-2.0
"""Limits of memory, time and work, and what pacing takes its own events to cost.

They keep queues finite, end waits for what may never answer, and pace what the service does for
itself. Those under *Decisions* cut a decision short, and what was cut off comes with a later one;
none of them says which of two pages is worth more, which is for tuning constants
(`tierd.core.tuning`). A number without a reason beside it is an assumption.
"""

from __future__ import annotations

from typing import Final

# The service itself.
HEAP_KEEP_BYTES: Final = 128 << 20
"""Free bytes that the heap keeps."""
HEAP_CLAIM_BYTES: Final = 24 << 20
"""Heap that is claimed at the start: what ticks over some ten thousand pages take."""
GC_OBJECTS: Final = 20_000
"""New objects until Python's garbage collector runs; a tick makes some thousands."""
SUMMARY_INTERVAL_NS: Final = 10 * 10**9
"""Time between two summaries in the log, and between two status lines of systemd."""
WAKE_INTERVAL_NS: Final = 250 * 10**6
"""Longest time in which the loop neither serves calls nor reads sources."""
ONCE_HALF_LIVES: Final = 4.0
"""Half-lives of heat for which `tierd run --once` waits for a first sample."""
WATCHDOG_FRACTION: Final = 0.25
"""Part of the watchdog's timeout after which it is notified."""
SOURCE_RETRY_NS: Final = 30 * 10**9
"""Time after which a source that failed is tried again."""
MAX_TARGETS: Final = 1 << 16
"""Processes that have numbers at a time: 16 bits of a page's key."""
PRESSURE_CGROUPS: Final = 64
"""Control groups whose pressure is read at a time; the others follow next time."""
COUNTED_PAGES: Final = 1 << 20
"""Moved pages that are remembered in each half of the ping-pong window, at 8 bytes each."""
PROBE_INTERVAL_NS: Final = 60 * 10**9
"""Time between two measurements of all nodes, each of which takes some milliseconds."""
PROBE_AGAIN_NS: Final = 10**9
"""Time to the next measurement of nodes while one is suspected of stalls."""
PROBE_CREDIT_NS: Final = 60 * 10**9
"""Measurements may take the CPU time of so long in one go: some twenty of them."""
PROBE_END_S: Final = 2.0
"""Longest wait, at the end, for a measurement that is under way; it takes milliseconds."""
HEALTH_HISTORY: Final = 720
"""Probes of a node that make its usual figures: an hour of them, one every five seconds."""
SAMPLED_PROCESSES: Final = 16
"""The largest processes, of which doctor reads pages."""
SAMPLES: Final = 16
"""Pages that doctor reads of each."""
SAMPLE_S: Final = 2.0
"""Doctor's wait for one process: smaps takes the kernel a tenth of a second for a GiB."""
SAMPLES_S: Final = 30.0
"""Doctor's wait for all of them."""
PAGE_OUT_INTERVAL_NS: Final = 10**9
"""Shortest time between two rounds of page-outs."""
PAGE_OUT_MOST_S: Final = 2.0
"""Seconds of its rate that a round of page-outs may take in one go."""
PAGE_OUT_ANSWER_S: Final = 30.0
"""Longest wait for the loop's answer; a round is left out then."""
PAGE_OUT_FAULT_NS: Final = 600 * 10**9
"""Time between two measurements of a fault on swapped memory; each pages out a MiB of its own."""
PAGE_OUT_CALL_PAGES: Final = 512
"""Pages that are paged out in one call: a few milliseconds of compressing."""
PAGE_OUT_PAGES: Final = 4096
"""4 KiB pages that page-outs visit together: a chunk, 16 MiB."""
PAGE_OUT_CHUNKS: Final = 1 << 16
"""Chunks of 16 MiB that page-outs remember, a TiB, at up to 2 KiB each."""
ERROR_TRACE_KIB: Final = 64
"""Size of the trace buffer for memory errors on each CPU: some 250 event records of CXL devices."""
ERROR_ADDRESSES: Final = 4096
"""Poisoned addresses of devices that are remembered, so that a second listing counts none anew."""
ERROR_CONTROLLERS: Final = 256
"""Memory controllers of which EDAC is asked; the largest hosts have some dozens."""
ERROR_LOG_NS: Final = 60 * 10**9
ERROR_LOG_LINES: Final = 10
"""In so long, so many memory errors are logged; the others are counted."""
CPU_CREDIT_NS: Final = 10 * 10**9
"""CPU time left over by the loop or the mover in this time may be spent."""
RING_FILL_FRACTION: Final = 0.25
"""Part of its ring buffer to which a source's reports fill it before they are read."""
DEVICE_CHECK_NS: Final = 5 * 10**9
"""Time between two questions to a device about its state."""
THRESHOLD_HISTORY: Final = 600
"""Decisions about thresholds that are kept for reports."""

# Heat.
HEAT_BYTES_PER_PAGE: Final = 24
"""Bytes of the heat table for a page: 1.25 slots of 18.25 bytes (daemon/native/heat_table.c)."""
HEAT_FRACTION: Final = 1 / 2048
"""Part of the host's memory that the heat table may take, unless a configuration says how much: one
page in twelve, the hottest, or all of them where they are 2 MiB."""
HEAT_MOST_BYTES: Final = 32 << 30
"""As much as its 32-bit indices allow, rounded down."""
HEAT_LEAST_BYTES: Final = 64 << 20
"""As much of it a small host allows."""
HEAT_FOLIOS: Final = 1024
"""First size of a buffer of folios, which grows."""
PATTERN_REGIONS: Final = 1 << 16
"""Regions of one size whose pattern is kept; the least accessed ones give way."""

# Decisions: what is asked or tried first, and how much work one decision is.
FIRST_VICTIMS: Final = 512
"""A tier's coldest pages that are asked for first; more are, where all of them leave."""
FIRST_HOT: Final = 1024
"""Hottest pages below a tier that are asked for first; more are, where all of them come in."""
ASKED_AGAIN: Final = 8
"""Times as many pages when a decision asks heat for more; with 32, sorting took thrice as long."""
ASKED_AT_ONCE: Final = 65536
"""... but no more than this, unless more are wanted."""
EXCHANGES: Final = 96
"""Exchanges that one decision of the policy `cost` makes."""
PLACEMENT_ITERATIONS: Final = 16
"""Iterations of its placement optimiser."""
EPOCH_PAGES: Final = 1 << 17
"""Pages of an epoch, or of a series of moves, that are looked at again or taken back; of more,
those with the highest addresses are left out."""
FEEDBACK_EPOCHS: Final = 256
"""Epochs with moves that are kept: for their rank correlation, and for the last minute's gain."""
SPLITS: Final = 64
"""Folios that one decision splits, which takes 32 ms."""
SPLIT_REGIONS: Final = 1 << 16
"""Split regions that are remembered."""

# Moves.
MAX_BUSY_BACKOFF_NS: Final = 200 * 10**6
"""Longest time until busy pages are tried again."""
PING_PONG_WINDOW_NS: Final = 60 * 10**9
"""Time within which a page that moves twice is counted as ping-pong."""
NATIVE_CALL_NS: Final = 50 * 10**6
"""Longest call of the mover or step of the promoter: signals, stop and hold wait for it."""
MOVER_SLICE_NS: Final = 5 * 10**6
"""Time after which the mover returns to the promoter."""
OUTCOMES_AT_ONCE: Final = 8192
"""Results that are taken from the promoter in one call."""
MOVE_CALL_NS: Final = 10 * 10**6
"""Planned time of one call of move_pages: a tenth of the time within which a stop is obeyed."""

# Sources.
MODULE_ANSWER_S: Final = 5.0
"""Time that the kernel module has to answer a request."""
IDLE_RING_RECORDS: Final = 1 << 17
"""Records of scans by idle page tracking that wait to be read, as many as the module's ring has."""
IDLE_HISTORY_BYTES: Final = 64 << 20
"""Memory that histories of these scans may take on hosts where a part of all memory is less."""
IDLE_STEP_NS: Final = 3 * 10**6
"""CPU time of a step of such a scan."""
IDLE_CREDIT_NS: Final = 2 * 10**9
"""Scans that waited may take the budget of this time at once, as the module's scanner does."""
IDLE_RETRY_NS: Final = 10**9
"""Time after which a process whose pages could not be read is tried again."""
IDLE_WAIT_NS: Final = 10 * 10**9
"""Longest time that the scanner sleeps."""
IDLE_NODES_NS: Final = 60 * 10**9
"""Time after which it is read anew which node has which page frames."""
LEAST_AGE_S: Final = 0.001
"""Least age by which counts of an epoch, or of heat, are divided."""
COUNT_BYTES: Final = 32
"""Bytes of a file of sysfs that holds one number."""
DAMON_RANGES: Final = 256
"""Address ranges of a target that DAMON monitors; those with the smallest gaps are joined."""
DAMON_TRACE_KIB: Final = 1024
"""Size of the trace buffer for DAMON on each CPU."""
BPF_LOAD_RETRY_NS: Final = 300 * 10**9
"""Time after which a load of BPF programs that failed is tried again."""
BPF_HELPER_TIMEOUT_S: Final = 300.0
"""Time after which the helper that loads them is ended: bcc takes minutes in a slow guest."""
BPF_HELPER_ERROR_CHARACTERS: Final = 400
"""Last characters of its error text that are reported."""
BPF_TABLE_BYTES: Final = 4 << 20
"""Counting table of the programs, and ring buffers, of all CPUs."""
BPF_TARGETS: Final = 4096
"""Processes that the programs sample."""
BPF_DECODE_SAMPLES: Final = 8192
"""Samples that are decoded in one step."""
BPF_EPOCH_SETTLE_S: Final = 100e-6
"""Time in which a program that began in the old epoch has ended; they run for under 1 us."""
BPF_STATISTICS_EVERY: Final = 16
"""Adaptation steps in one of which the kernel times the programs, because timing costs time."""
BPF_CALM_STEPS: Final = 10
"""Adaptation steps without throttling after which the sampling period may shrink again."""
PMU_INTERRUPT_NS: Final = 1500.0
"""CPU time of a performance counter's interrupt besides the program: 1 to 2 us on current cores."""
FAULT_EVENT_NS: Final = 250.0
"""CPU time of a software event of perf besides the program (docs/reference/ebpf.md, Costs)."""
PMU_LEAST_PERIOD: Final = 256
"""Least sampling period of raw events, whatever rate is wanted."""

# Processes.
ANSWER_NS: Final = 500 * 10**6
"""Longest time for which the loop waits for an answer about a process that sleeps; for one that is
only slow, and for DAMON's files, the native agents wait longer (daemon/native/agent_wait.c). A
plan's calls take a 50th of it."""
SLOW_READ_TIMES: Final = 4
"""Waits after which a reading that is active is given up, beside the first: 1.25 s in all."""
READS_NS: Final = 5 * 10**9
"""Time after which no further reading of the same round is begun: a twelfth of the watchdog's."""
READERS: Final = 16
"""Readings that are late at a time, each of which takes a thread; then no more are begun."""
UNANSWERED: Final = -(1 << 15)
"""In place of a page's node: its process does not answer for now."""
PROC_BYTES: Final = 16384
"""Bytes that one read of a process's file asks for; stat, status and cgroup are far smaller."""
MAPS_BYTES: Final = 128 << 20
"""Bytes of `maps` or `numa_maps` that are read, which is about a million mappings."""
SMAPS_BYTES: Final = 1 << 30
"""Bytes of `smaps` that are read."""
WATCHED_RANGES: Final = 4096
"""Largest ranges of a process that are watched."""
FULL_POLL_NS: Final = 60 * 10**9
"""Time after which all of /proc is read even where process events arrive."""
NEW_PROCESSES: Final = 256
"""New processes that are looked at by age; the others wait for the refresh."""
EXAMPLES: Final = 3
"""Processes that are named as examples of those a matcher matches."""
PARENTS: Final = 64
"""Parents that are followed to find out whether tierd started a process."""
EVENT_BUFFER_BYTES: Final = 4 << 20
"""Buffer of the socket for process events, which holds about 10,000 of them."""
EVENTS: Final = 16384
"""Process events that are decoded at once; more count as lost, and /proc is read."""
EVENT_ANSWER_S: Final = 1.0
"""Time that the kernel has to confirm the subscription to process events."""
NEW_PROCESS_AGES_NS: Final = tuple(each * 250_000_000 for each in (1, 2, 4, 6, 8, 12, 16, 24, 32))
"""Ages at which a new process is looked at."""
REST_REFRESHES: Final = 2
"""Refreshes in which a small or idle process is passed over after each reading."""
FORGOTTEN_PAGES: Final = 1 << 17
"""Pages that heat is asked to forget by their keys; of more, it looks at all that it has."""
FEW_NEW_FRACTION: Final = 1 / 8
"""Part of new pages below which a process is not read anew."""
REREAD_NS: Final = 30 * 10**9
"""Time after which what is known of an idle process, or of a page's node, is read again."""
READING_CPU_FRACTION: Final = 1 / 500
"""Part of one CPU that residency scans and readings of memory policies take."""
WALK_WAIT_NS: Final = 24 * 3600 * 10**9
"""Longest time that a residency scan waits for CPU time."""
PAGEMAP_REGIONS: Final = 4096
"""Regions that one call of PAGEMAP_SCAN returns."""
SPAN_GAP_PAGES: Final = 64 * 512
"""Gap between blocks beyond which they are scanned by separate calls."""
PAGEMAP_CHUNK_PAGES: Final = 1 << 18
"""Entries of `pagemap` that are read at once."""

# Decisions that are kept for `tierd explain`.
LOGGED_PLANS: Final = 2048
"""Plans, and the fast path's outcomes between two plans, that are searched for a page."""

MAX_LEFT_ALONE_NS: Final = 3600 * 10**9
"""The longest time for which memory that the kernel refuses to move is left alone."""
REFUSALS_FRACTION: Final = 1 / 16
"""So many refused folios, and mappings, are remembered for each page that heat can hold (33 bytes
each)."""
MAX_STAND_DOWN_NS: Final = 3600 * 10**9
"""The longest time for which a service stands down before it tries again."""

# What `tierd undo` needs to know.
UNDO_MOVES: Final = 1 << 16
"""Moves that are kept as they come before they are put into the order of pages."""
UNDO_FRACTION: Final = 1 / 2
"""So many folios that were moved are remembered for each that heat can hold (13 bytes each)."""
ORIGIN_PART: Final = 1 << 16
"""Folios of a part of them that is put into order at once, which takes some 10 ms."""
ORIGIN_STEP: Final = 1 << 17
"""Folios that are put into order in one tick."""
ORIGIN_NEW_FRACTION: Final = 1 / 4
"""Part of its folios that may be new before a part is put into order."""
UNDO_ROUNDS: Final = 5
"""Times that busy pages and pages without room are tried again, one tick or more apart."""
