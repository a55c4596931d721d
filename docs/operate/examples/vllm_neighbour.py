# SPDX-License-Identifier: Apache-2.0
"""KV blocks that vLLM evicts, kept on a neighbour GPU: an OffloadingSpec for its connector.

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {"spec_name": "NeighbourSpec",
        "spec_module_path": "vllm_neighbour", "neighbour": 1, "neighbour_bytes": 17179869184,
        "block_bytes": 2097152, "library": "/usr/lib/libtierd-gpu.so"}}'

`block_bytes` is what one block takes in all tensors together; a loan has whole chunks of 2 MiB.

Written after vllm/v1/kv_offload/base.py of vLLM at commit 0105e232b7fa (2026): OffloadingSpec
with get_manager and get_worker, OffloadingManager, OffloadingWorker. That interface changes
between releases; this file has never run inside vLLM. A test drives it with an engine of its own
(tests/host/test_gpu_loan.py).

The manager (scheduler's side) and the worker share a `Store`, so both have to be in one process:
one GPU for each engine (tensor parallel size 1). Memory is taken and given back by the worker's
side; a key is forgotten at the moment its memory is. A block that is being read or written when
it is asked back is freed when that is over, a few milliseconds later.
"""

from __future__ import annotations

import ctypes
import enum
import os
import select
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from tierd_gpu.borrow import Loan

try:
    from vllm.v1.kv_offload import base
except ImportError:  # the same names, for a stand-in engine

    class base:  # noqa: N801
        """What is used of vllm.v1.kv_offload.base."""

        class LookupResult(enum.Enum):
            """Result of a lookup."""

            MISS = enum.auto()
            HIT = enum.auto()
            HIT_PENDING = enum.auto()

        @dataclass
        class PrepareStoreOutput:
            """What is to be stored, where, and what went for it."""

            keys_to_store: list[bytes]
            store_spec: Any
            evicted_keys: list[bytes]

        @dataclass
        class TransferResult:
            """One transfer that ended."""

            job_id: int
            success: bool
            transfer_size: int | None = None
            transfer_time: float | None = None

        @dataclass
        class RequestOffloadingContext:
            """How a request's blocks are offloaded."""

        class OffloadingManager:
            """The scheduler's side."""

        class OffloadingWorker:
            """The worker's side."""

        class LoadStoreSpec:
            """Where blocks are."""

        class OffloadingSpec:
            """Makes both."""

            def __init__(self, config: Any) -> None:
                self.config, self.extra_config = config, config.extra_config


LEAST = 2 << 20
"""A loan's memory comes in blocks of whole chunks."""
FOUND_S = 0.02
"""Between a lookup and the load that follows from it; half of the time to give back."""
POLL_S = 0.05
"""The thread that gives back wakes so often though nothing happens."""


class Slots(base.LoadStoreSpec):
    """Where blocks are: an address for each key."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries


@dataclass
class Entry:
    """One block of the cache; `busy` transfers use it."""

    key: bytes
    address: int
    ready: bool = False
    busy: int = 0
    found: float = 0.0
    gone: bool = field(default=False)


class Store:
    """What is kept on the neighbour, the longest unused first."""

    def __init__(self, loan: Loan, block_bytes: int, wanted: int) -> None:
        self.loan = loan
        self.block_bytes = -(-block_bytes // LEAST) * LEAST
        self.entries: OrderedDict[bytes, Entry] = OrderedDict()
        self.lock = threading.RLock()
        self.dropped = 0
        self.closing = False
        loan.want(wanted)
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        """Give back when asked to, whether the engine steps or not."""
        fd = self.loan.fileno()
        while not self.closing:
            if select.select([fd], [], [], POLL_S)[0]:
                os.read(fd, 8)
            while self.loan.state().excess and not self.closing:
                self.give_back()
                time.sleep(POLL_S / 25)

    def close(self) -> None:
        """Free all."""
        self.closing = True
        self.thread.join()
        with self.lock:
            self.entries.clear()
            self.loan.close()

    def forget(self, entry: Entry) -> None:
        """A key is not found any more; its memory goes when nobody uses it."""
        with self.lock:
            if self.entries.get(entry.key) is entry:
                del self.entries[entry.key]
            entry.gone = True
            self._release(entry)

    def _release(self, entry: Entry) -> None:
        if entry.gone and not entry.busy and entry.address:
            self.loan.free(entry.address)
            entry.address = 0

    def done(self, entry: Entry) -> None:
        """A transfer of it ended."""
        with self.lock:
            entry.busy -= 1
            self._release(entry)

    def give_back(self) -> int:
        """Forget the longest unused until no more is held than granted; how many went.

        What a lookup has just found stays a little: the engine is about to load it.
        """
        with self.lock:
            excess, went = self.loan.state().excess, 0
            since = time.monotonic() - FOUND_S
            for entry in list(self.entries.values()):
                if went * self.block_bytes >= excess:
                    break
                if entry.found < since:
                    self.forget(entry)
                    went += 1
            self.dropped += went
            return went

    def add(self, key: bytes, evicted: list[bytes]) -> Entry | None:
        """Memory for a key; of what is idle the longest unused goes for it."""
        address = self.loan.alloc(self.block_bytes)
        if address is None:
            idle = next((e for e in self.entries.values() if e.ready and not e.busy), None)
            if idle is None or self.loan.state().excess:
                return None
            evicted.append(idle.key)
            self.forget(idle)
            address = self.loan.alloc(self.block_bytes)
        if address is None:
            return None
        self.entries[key] = entry = Entry(key, address, busy=1)
        return entry


class NeighbourManager(base.OffloadingManager):
    """Which keys are on the neighbour."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def on_new_request(self, req_context: Any) -> Any:
        """Nothing depends on the request."""
        return base.RequestOffloadingContext()

    def lookup(self, key: bytes, req_context: Any) -> Any:
        """Whether a block is there."""
        self.store.give_back()
        with self.store.lock:
            entry = self.store.entries.get(key)
            if entry is None:
                return base.LookupResult.MISS
            entry.found = time.monotonic()
            return base.LookupResult.HIT if entry.ready else base.LookupResult.HIT_PENDING

    def touch(self, keys: Collection[bytes], req_context: Any) -> None:
        """They were used."""
        with self.store.lock:
            for key in keys:
                if key in self.store.entries:
                    self.store.entries.move_to_end(key)
        self.store.loan.used()

    def prepare_load(self, keys: Collection[bytes], req_context: Any) -> Slots:
        """Where they are; they stay until the transfer is over.

        Raises:
            KeyError: one was given back since it was found, which was longer ago than a step.
        """
        with self.store.lock:
            entries = [self.store.entries[key] for key in keys]
            for entry in entries:
                entry.busy += 1
        self.touch(keys, req_context)
        return Slots(entries)

    def complete_load(self, keys: Collection[bytes], req_context: Any) -> None:
        """The worker has let go of them already."""

    def prepare_store(self, keys: Collection[bytes], req_context: Any) -> Any:
        """Memory for those that fit; None: for none."""
        self.store.give_back()
        entries: list[Entry] = []
        evicted: list[bytes] = []
        with self.store.lock:
            for key in keys:
                if key in self.store.entries:
                    continue
                entry = self.store.add(key, evicted)
                if entry is None:
                    break
                entries.append(entry)
        stored = [entry.key for entry in entries]
        if not stored and any(key not in self.store.entries for key in keys):
            return None
        return base.PrepareStoreOutput(stored, Slots(entries), evicted)

    def complete_store(
        self, keys: Collection[bytes], req_context: Any, success: bool = True
    ) -> None:
        """They can be read now, or are nothing."""
        with self.store.lock:
            for key in keys:
                entry = self.store.entries.get(key)
                if entry is not None and not entry.ready:
                    entry.ready = success
                    if not success:
                        self.store.forget(entry)

    def take_events(self) -> Iterable[Any]:
        """None are told."""
        return ()

    def reset_cache(self) -> None:
        """Forget all."""
        with self.store.lock:
            for entry in list(self.store.entries.values()):
                self.store.forget(entry)


class NeighbourWorker(base.OffloadingWorker):
    """Copies blocks, on a stream of its own.

    Args:
        store: shared with the manager.
        pages: (address, bytes of a page) of each tensor; block `n` is page `n` of each.
        driver: the CUDA driver.
    """

    def __init__(self, store: Store, pages: list[tuple[int, int]], driver: ctypes.CDLL) -> None:
        self.store, self.pages, self.driver = store, pages, driver
        self.stream = ctypes.c_void_p()
        self._check(driver.cuStreamCreate(ctypes.byref(self.stream), 1))
        self.jobs: dict[int, tuple[ctypes.c_void_p, list[Entry], int, float]] = {}

    def _check(self, result: int) -> None:
        if result:
            raise RuntimeError(f"CUDA driver error {result}")

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Slots) -> bool:
        """Start to copy blocks to the neighbour."""
        return self._submit(job_id, src_spec.block_ids, dst_spec.entries, store=True)

    def submit_load(self, job_id: int, src_spec: Slots, dst_spec: Any) -> bool:
        """Start to copy blocks home."""
        return self._submit(job_id, dst_spec.block_ids, src_spec.entries, store=False)

    def _submit(self, job_id: int, blocks: Any, entries: list[Entry], *, store: bool) -> bool:
        for block, entry in zip(blocks, entries, strict=True):
            away = entry.address
            for base_address, size in self.pages:
                home = base_address + int(block) * size
                to, source = (away, home) if store else (home, away)
                self._check(
                    self.driver.cuMemcpyDtoDAsync_v2(
                        ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size),
                        self.stream,
                    )
                )  # fmt: skip
                away += size
        event = ctypes.c_void_p()
        self._check(self.driver.cuEventCreate(ctypes.byref(event), 2))
        self._check(self.driver.cuEventRecord(event, self.stream))
        size = len(entries) * sum(size for _, size in self.pages)
        self.jobs[job_id] = (event, entries, size, time.perf_counter())
        return True

    def get_finished(self) -> list[Any]:
        """Transfers that ended; then memory that was asked back goes."""
        found = []
        for job_id, (event, entries, size, since) in list(self.jobs.items()):
            if self.driver.cuEventQuery(event):
                continue
            del self.jobs[job_id]
            self.driver.cuEventDestroy_v2(event)
            for entry in entries:
                self.store.done(entry)
            took = time.perf_counter() - since
            found.append(base.TransferResult(job_id, True, size, took))
        return found

    def wait(self, job_ids: set[int]) -> None:
        """Until these have ended."""
        for job_id in job_ids & self.jobs.keys():
            self._check(self.driver.cuEventSynchronize(self.jobs[job_id][0]))

    def shutdown(self) -> None:
        """The process keeps nothing on the neighbour."""
        self.wait(set(self.jobs))
        self.get_finished()
        self.store.close()


class NeighbourSpec(base.OffloadingSpec):
    """Makes manager and worker; both of one process share a store."""

    _store: Store | None = None

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        if getattr(self, "blocks_per_chunk", 1) != 1:
            raise ValueError("one block a key is offloaded here: set no larger block size")

    def _shared(self) -> Store:
        cls, extra = type(self), self.extra_config
        if cls._store is None:
            loan = Loan(
                extra["library"], home=int(extra.get("home", 0)), name="vllm",
                neighbour=int(extra["neighbour"]), driver=extra.get("driver", "libcuda.so.1"),
                socket=extra.get("socket", "/run/tierd/gpu.sock"),
            )  # fmt: skip
            cls._store = Store(loan, int(extra["block_bytes"]), int(extra["neighbour_bytes"]))
        return cls._store

    def get_manager(self) -> NeighbourManager:
        """The scheduler's side."""
        return NeighbourManager(self._shared())

    def get_worker(self, kv_caches: Any) -> NeighbourWorker:
        """The worker's side, for tensors of whole blocks."""
        pages = [(each.tensor.data_ptr(), each.page_size_bytes) for each in kv_caches.tensors]
        driver = ctypes.CDLL(self.extra_config.get("driver", "libcuda.so.1"))
        return NeighbourWorker(self._shared(), pages, driver)
