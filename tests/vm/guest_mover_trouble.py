# SPDX-License-Identifier: Apache-2.0
"""Checks of the mover where something is in the way: no room, a killed target, a stop, a rate.

See `guest_mover`, which runs them.
"""

from __future__ import annotations

import threading
import time

import numpy as np
from guest_holder import Holder
from moverkit import HUGE_PAGES, TARGET, Machine, Result, fates, keys, nodes_of, plan

from tierd.core.migration import Fate
from tierd.migration import NativeMover


class TroubleChecks(Machine):
    """One method a check; each returns its result with "ok"."""

    def full_node(self) -> Result:
        """A node without room: what fits moves, the rest is NO_ROOM and stays whole."""
        with Holder(192 << 8) as holder, self._ballast(80 << 20):
            page = keys(holder.vpn, holder.pages)
            start = time.monotonic()
            report = self.mover().execute(plan(page, self.far), {TARGET: holder.pid})
            took = time.monotonic() - start
            moved = report.count(Fate.MOVED)
            where = nodes_of(holder, page)
            wrong = holder.ask("verify")["wrong"]
        return {
            "ok": set(fates(report)) <= {"MOVED", "NO_ROOM"}
            and report.count(Fate.NO_ROOM) > 0
            and where.get(self.far, 0) == moved
            and report.moved_bytes == moved * 4096
            and wrong == 0,
            "fates": fates(report),
            "errors": report.errors,
            "nodes": where,
            "seconds": round(took, 2),
            "wrong": wrong,
        }

    def full_node_huge(self) -> Result:
        """2 MiB folios and a node without room: bytes and nodes are told as they are."""
        with Holder(96 * HUGE_PAGES, "huge") as holder, self._ballast(80 << 20):
            page = keys(holder.vpn, holder.pages, HUGE_PAGES)
            every = keys(holder.vpn, holder.pages)
            report = self.mover().execute(plan(page, self.far, order=9), {TARGET: holder.pid})
            where = nodes_of(holder, every)
            wrong = holder.ask("verify")["wrong"]
        return {
            "ok": report.moved_bytes == where.get(self.far, 0) * 4096
            and report.count(Fate.NOT_TRIED) == 0
            and wrong == 0,
            "fates": fates(report),
            "nodes": where,
            "errors": report.errors,
            "moved_bytes": report.moved_bytes,
            "wrong": wrong,
        }

    def killed(self) -> Result:
        """The process dies in the middle: the plan ends, its pages are moved or gone."""
        with Holder(32768) as holder:
            mover = self.mover(rate_bytes_per_s=100 << 20)
            timer = threading.Timer(0.4, holder.kill)
            timer.start()
            page = keys(holder.vpn, holder.pages)
            report = mover.execute(plan(page, self.far), {TARGET: holder.pid})
            timer.join()
            again = mover.execute(plan(page[:10], self.far), {TARGET: holder.pid})
        return {
            "ok": set(fates(report)) <= {"MOVED", "GONE"}
            and report.count(Fate.GONE) > 0
            and fates(again) == {"GONE": 10},
            "fates": fates(report),
            "errors": report.errors,
        }

    def stopped(self) -> Result:
        """A stop ends the plan, whether it waits for tokens, backs off, or moves."""
        took: dict[str, float] = {}
        ends: dict[str, dict[str, int]] = {}
        for name, options in (
            ("waits", {"rate_bytes_per_s": 1 << 20, "burst_bytes": 2 << 20}),
            ("moves", {}),
            ("backs_off", {"busy_retries": 100}),
        ):
            with Holder(65536 if name == "moves" else 4096) as holder:
                if name == "backs_off":
                    holder.ask("pin", 0, 64)
                mover = self.mover(**options)
                stop_at: list[float] = []

                def stop(mover: NativeMover = mover, at: list[float] = stop_at) -> None:
                    at.append(time.monotonic())
                    mover.stop()

                timer = threading.Timer(0.2, stop)
                timer.start()
                page = keys(holder.vpn, 64 if name == "backs_off" else holder.pages)
                report = mover.execute(plan(page, self.far), {TARGET: holder.pid})
                end = time.monotonic()
                timer.join()
                took[name] = round((end - stop_at[0]) * 1e3, 1)
                ends[name] = fates(report)
                mover.resume()
                left = np.flatnonzero(report.fate == Fate.NOT_TRIED)[:100]
                if name == "waits":
                    rest = mover.execute(plan(page[left], self.far), {TARGET: holder.pid})
                    resumed = rest.count(Fate.MOVED) == len(left)
        return {
            "ok": ends["waits"].get("NOT_TRIED", 0) > 0
            and set(ends["backs_off"]) <= {"BUSY", "NOT_TRIED"}
            and set(ends["moves"]) <= {"MOVED", "NOT_TRIED"}
            and resumed,
            "stopped_after_ms": took,
            "fates": ends,
        }

    def rate(self) -> Result:
        """Never more than rate * t + burst, over the whole plan and in windows of it."""
        rate, burst = 40 << 20, 4 << 20
        with Holder(16384) as holder:
            mover = self.mover(rate_bytes_per_s=rate, burst_bytes=burst)
            page = keys(holder.vpn, holder.pages)
            worst = 0.0
            start = time.monotonic_ns()
            log: list[tuple[int, int, int]] = []
            for part in np.array_split(page, 64):
                before = time.monotonic_ns()
                report = mover.execute(plan(part, self.far), {TARGET: holder.pid})
                log.append((before, time.monotonic_ns(), report.moved_bytes))
            for first in range(len(log)):
                total = 0
                for _, end, moved in log[first:]:
                    total += moved
                    allowed = rate * (end - log[first][0]) / 1e9 + burst
                    worst = max(worst, total / allowed)
            seconds = (time.monotonic_ns() - start) / 1e9
            total = sum(moved for _, _, moved in log)
        return {
            "ok": worst <= 1.0 and total == 16384 * 4096,
            "worst_share_of_allowed": round(worst, 3),
            "rate_reached": round((total - burst) / seconds / rate, 3),
        }

    def while_writing(self) -> Result:
        """Pages that are written all the time lose no write, over many moves."""
        with Holder(16384) as holder:
            holder.ask("write")
            mover = self.mover()
            page = keys(holder.vpn, holder.pages)
            moved = busy = 0
            start = time.monotonic()
            while moved < self.pages and time.monotonic() - start < 600:
                for dest in (self.far, self.near):
                    report = mover.execute(plan(page, dest), {TARGET: holder.pid})
                    moved += report.count(Fate.MOVED)
                    busy += report.count(Fate.BUSY)
            holder.ask("quiet")
            verified = holder.ask("verify")
        return {
            "ok": verified["wrong"] == 0 and moved >= self.pages and verified["writes"] > 0,
            "moved": moved,
            "busy": busy,
            "longest_call_ms": round(mover.longest_call_ns / 1e6, 1),
            **verified,
        }
