# SPDX-License-Identifier: Apache-2.0
"""Bad luck of the NeoProf driver, in a lab guest with simulated cards."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import guest_kmod as lab
import module_events
import neoprof_lab as np_lab
import numpy as np
from guest_kmod import Result
from guest_kmod_fuzz import message
from neoprof_lab import FULL, INTERRUPTING, SMALL, Pages, cards, drained, driver, host, ring

from neoprof import regs
from tierd.core.errors import TargetGoneError, UnavailableError
from tierd.sources.hmu_devices import RequestCount
from tierd.sources.kmod.neoprof import CardRange, Cards
from tierd.sources.kmod.uapi import ATTRIBUTES, CardDo, CardFlags, CardState, Command, Event, Kind

PARAMETERS = Path("/sys/module/tierd_neoprof/parameters")
CLASS = Path("/sys/class/neoprof")
RELOADS = 10
MESSAGES = 5_000


def events(listener: Cards) -> list[tuple[Event, int | None]]:
    """Events of cards since the last call."""
    return module_events.events(listener, "TIERD_A_CARD")


def attempt(action: object) -> str:
    """The error of an action, empty if there is none."""
    try:
        action()  # type: ignore[operator]
    except (UnavailableError, TargetGoneError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def silence() -> Result:
    """A host that does not answer: the card fails in a bounded time, and a reset revives it."""
    pages = Pages(50)
    with driver(), cards() as connection, cards() as listener, ring(Kind.HOT) as records:
        module_events.subscribe(listener)
        connection.set(FULL, threshold=5, epoch_us=0, enable=True)
        drained(connection, FULL)
        (PARAMETERS / "timeout_ms").write_text("200")
        host().ask("answering", on=False)
        failed = np_lab.until(
            lambda: (card := connection.card(FULL)).state is CardState.FAILED and card,
            "the card did not fail",
        )
        told = events(listener)
        setting = attempt(lambda: connection.set(FULL, threshold=7))
        profile = attempt(lambda: connection.profile(FULL))
        requests = np_lab.no_requests(FULL)
        # The other card of the window fails when it is asked, and no sooner.
        other = connection.card(SMALL).state
        start = time.monotonic()
        asked = attempt(lambda: connection.set(SMALL, threshold=5, epoch_us=0, enable=True))
        waited = time.monotonic() - start
        reset = attempt(lambda: connection.set(FULL, do=CardDo.RESET))
        (PARAMETERS / "timeout_ms").write_text(str(np_lab.TIMEOUT_MS))
        host().ask("answering", on=True)
        connection.set(FULL, do=CardDo.RESET, threshold=5, epoch_us=0, enable=True)
        connection.set(SMALL, do=CardDo.RESET)
        host().push(FULL, pages.pfns, 10)
        drained(connection, FULL)
        found = len(lab.drain(records))
        state = (CLASS / "neoprof0/state").read_text().strip()
    return {
        "ok": "no answer in 200 ms" in failed.why
        and (Event.CARD_FAILED, FULL) in told
        and "failed; reset it" in setting
        and "failed" in profile
        and requests == errno.ENODEV
        and other is CardState.STOPPED
        and bool(asked)
        and bool(reset)
        and found == 50
        and state == "counting",
        "why": failed.why,
        "setting": setting,
        "asked": asked,
        "reset": reset,
        "waited_s": round(waited, 2),
        "found": found,
        "events": [str(e) for e in told],
    }


def host_gone() -> Result:
    """The magic becomes 0: cards fail at once, and come back with their host."""
    with driver(timeout_ms=30_000), cards() as connection:
        connection.set(FULL, epoch_us=0, enable=True)
        drained(connection, FULL)
        host().ask("magic", on=False)
        card = np_lab.until(
            lambda: (card := connection.card(FULL)).state is CardState.FAILED and card, "no failure"
        )
        again = attempt(lambda: connection.set(FULL, do=CardDo.RESET))
        host().ask("magic", on=True)
        connection.set(FULL, do=CardDo.RESET, enable=True)
        drained(connection, FULL)
    host().ask("magic", on=False)
    with lab.module():
        lab.load_cards()
        with cards() as connection:
            without = connection.cards()
        host().ask("magic", on=True)
    return {
        "ok": "the window has gone" in card.why and bool(again) and without == [],
        "why": card.why,
        "again": again,
    }


def pulled() -> Result:
    """A device removed while its cards are drained goes, and one found again is there again."""
    pages = Pages(500)
    device = np_lab.devices()[0]
    with driver(), cards() as connection, cards() as listener:
        module_events.subscribe(listener)
        connection.set(FULL, threshold=0, epoch_us=0, drain_us=1000, enable=True)
        connection.set(SMALL, threshold=0, epoch_us=0, drain_us=1000, enable=True)
        for _ in range(3):
            host().push(FULL, pages.pfns, 1)
        (device / "remove").write_text("1")
        left = connection.cards()
        told = events(listener)
        gone = attempt(lambda: connection.set(FULL, threshold=1))
        profile = attempt(lambda: connection.profile(SMALL))
        Path("/sys/bus/pci/rescan").write_text("1")
        back = connection.cards()
        connection.set(FULL, threshold=0, epoch_us=0, enable=True)
        drained(connection, FULL)
        told += events(listener)
        names = sorted(path.name for path in CLASS.iterdir())
    return {
        "ok": [card.number for card in left] == [INTERRUPTING]
        and (Event.CARD_GONE, FULL) in told
        and (Event.CARD_GONE, SMALL) in told
        and (Event.CARD_ADDED, FULL) in told
        and "TargetGoneError" in gone
        and "TargetGoneError" in profile
        and [card.number for card in back] == [0, 1, 2, 3]
        and names == ["neoprof0", "neoprof1", "neoprof2", "neoprof3"],
        "gone": gone,
        "events": [str(e) for e in told],
    }


def contended(times: int = 8) -> Result:
    """Cards go while commands about them are carried out, which end well or find no such card."""
    wrong: list[str] = []
    done = {"set": 0, "list": 0, "profile": 0}
    ended = threading.Event()

    def command(name: str) -> None:
        rng = random.Random(name)
        with cards() as connection:
            actions: dict[str, Callable[[], object]] = {
                "set": lambda: connection.set(
                    FULL, threshold=rng.randrange(9), enable=rng.random() < 0.8
                ),
                "list": connection.cards,
                "profile": lambda: connection.profile(SMALL),
            }
            while not ended.is_set():
                told = attempt(actions[name])
                done[name] += not told
                if told and not any(word in told for word in ("TargetGoneError", "failed")):
                    wrong.append(told)

    bus = Path("/sys/bus/pci/drivers/neoprof_window")
    with driver():
        name = next(path.name for path in bus.iterdir() if path.name.startswith("0000:"))
        threads = [threading.Thread(target=command, args=(each,)) for each in done]
        for thread in threads:
            thread.start()
        for _ in range(times):
            before = dict(done)
            np_lab.until(
                lambda then=before: all(done[each] > then[each] + 3 for each in done), "no command"
            )
            (bus / "unbind").write_text(name)
            (bus / "bind").write_text(name)
        ended.set()
        for thread in threads:
            thread.join()
        with cards() as connection:
            connection.set(FULL, threshold=0, epoch_us=0, do=CardDo.RESET, enable=True)
            drained(connection, FULL)
            count = len(connection.cards())
    return {"ok": not wrong and count == 4, "wrong": wrong[:5], "done": done, "cards": count}


def separate() -> Result:
    """Without the driver of cards there is none; it comes and goes while the scanner goes on."""
    number = 7
    host()
    with lab.module(), cards() as connection, lab.connection() as control:
        control.scan_set(period_us=20_000, budget_ppm=200_000)
        control.target_add(number, os.getpid())

        def answers() -> tuple[int, list[str]]:
            told = [
                attempt(lambda: connection.set(FULL, threshold=5)).partition(":")[0],
                attempt(lambda: connection.profile(FULL)).partition(":")[0],
            ]
            return len(connection.cards()), told

        found = [answers()]
        refused = 0
        for _ in range(3):
            lab.load_cards()
            found.append(answers())
            refused += not lab.try_unload()
            subprocess.run(["rmmod", *reversed(lab.CARDS)], check=True)
            found.append(answers())
        before = control.scan_get().stats["rounds"]
        np_lab.until(lambda: control.scan_get().stats["rounds"] > before + 3, "no scan")
        kept = [each.target for each in control.targets()]
    none, all_ = (0, 2 * ["TargetGoneError"]), (4, ["", ""])
    return {
        "ok": found == [none, *(3 * [all_, none])] and refused == 3 and kept == [number],
        "found": found,
        "refused": refused,
        "targets": kept,
    }


def owner_dies() -> Result:
    """A card stops with the socket that enabled it, unless it shall persist."""
    with driver(), cards() as watcher:
        with cards() as owner:
            owner.set(FULL, epoch_us=0, enable=True)
            owner.set(SMALL, epoch_us=0, flags=CardFlags.PERSIST, enable=True)
            drained(watcher, FULL)
        np_lab.until(lambda: watcher.card(FULL).state is CardState.STOPPED, "it counts for nobody")
        drained(watcher, SMALL)
        kept = watcher.card(SMALL).state
        watcher.set(SMALL, enable=False)
    return {"ok": kept is CardState.COUNTING, "kept": str(kept)}


def removal() -> Result:
    """The module goes while cards count and their host is silent, in a bounded time."""
    host()
    states = []
    for answering in (True, False):
        with driver(), cards() as connection:
            connection.set(FULL, threshold=0, epoch_us=0, drain_us=1000, enable=True)
            connection.set(SMALL, threshold=0, epoch_us=0, drain_us=1000, enable=True)
            drained(connection, FULL)
            (PARAMETERS / "timeout_ms").write_text("200")
            host().ask("answering", on=answering)
        states.append(lab.loaded())
        host().ask("answering", on=True)
    return {"ok": states == [False, False], "loaded": states}


def reload(times: int = RELOADS) -> Result:
    """Loaded and unloaded with cards enabled and their files open, memory returns."""
    requests = RequestCount()
    told = []

    def once() -> None:
        with driver(), cards() as connection, ring(Kind.HOT):
            connection.set(FULL, epoch_us=0, enable=True)
            connection.profile(FULL)
            requests.count([FULL])
            host().push(FULL, np.array([1]), 10, device=True)
            told.append(requests.count([FULL]))
        # It is gone, and the next one begins at nothing.
        told.append(requests.count([FULL]))

    once()
    before = lab.memory()
    for _ in range(times):
        once()
    after = lab.memory()
    grown = {name: after[name] - before[name] for name in before}
    return {
        "ok": grown["SUnreclaim"] < min(4 << 20, times << 18)
        and grown["VmallocUsed"] < min(1 << 20, times << 16)
        and told == [10 * n for n in range(1, times + 2) for _ in range(2)],
        "told": told,
        "grown": grown,
        "reloads": times,
    }


def registers() -> Result:
    """Registers in a device's memory: a static image of a CHMU, and devices that are none."""
    host()
    start, end = np_lab.node_ranges()[-1]
    pages = Pages(40)
    low = pages.pfns[(pages.pfns >= start >> 12) & (pages.pfns < end >> 12)]
    entries = ((low - np.uint64(start >> 12)) << np.uint64(16)) | np.uint64(99)
    offset = regs.HOTLIST - regs.CHMU0_CAP0
    image = {
        regs.CHMU_CAP0: 1 | 1 << 8,
        regs.CHMU_CAP1: 0x100,
        regs.CHMU0_CAP0: 0x3F << 8 | 256 << 48,
        regs.CHMU0_CAP1: 0x3FF0 | 1 << 48 | 1 << 49,
        regs.CHMU0_RANGE_BITMAP_OFFSET: regs.RANGE_BITMAP - regs.CHMU0_CAP0,
        regs.CHMU0_HOTLIST_OFFSET: offset,
        regs.CHMU0_STATUS: 1 | 16 << 32,
        regs.CHMU0_HOTLIST: len(entries) << 16,
        regs.HOTLIST: 0,
    }
    for at, value in image.items():
        host().ask("image", np.array([value]), offset=at, count=1)
    host().ask("image", entries, offset=regs.HOTLIST, count=len(entries))
    with driver(ids="1af4:1110", bar=2, window=False), cards() as connection:
        known = connection.cards()
        claimed = [card for card in known if card.backend == "pci"]
        card = next(card for card in claimed if card.state is CardState.STOPPED)
        others = [other for other in claimed if other.number != card.number]
        with ring(Kind.HOT) as records:
            unknown = attempt(lambda: connection.set(card.number, enable=True))
            connection.set(
                card.number, ranges=[CardRange(start, end)], threshold=3, epoch_us=0, enable=True
            )
            drained(connection, card.number)
            found = lab.drain(records)
        after = connection.card(card.number)
        no_counters = attempt(lambda: connection.profile(card.number))
        conservative = attempt(lambda: connection.set(card.number, flags=CardFlags.CONSERVATIVE))
        coalesce = attempt(lambda: connection.set(card.number, flags=CardFlags.COALESCE))
    np_lab.forget_host()
    with lab.module():
        wrong = subprocess.run(
            ["insmod", str(lab.module_file(name=lab.CARDS[0])), "ids=rubbish"],
            capture_output=True,
            check=False,
        )
    return {
        "ok": card.backend == "pci"
        and "give ranges" in unknown
        and set(found["pfn"].tolist()) == set(low.tolist())
        and bool(np.all(found["value"] == 99))
        and after.stats["entries"] == len(low) > 0
        and {other.state for other in others} == {CardState.FAILED}
        and all(other.why for other in others)
        and bool(no_counters)
        and bool(conservative)
        and "not runs" in coalesce
        and wrong.returncode != 0
        and not lab.loaded(),
        "why": [other.why for other in others],
        "unknown": unknown,
        "none": no_counters,
        "found": len(found),
    }


def fuzz(messages: int = MESSAGES) -> Result:
    """Random messages to a module that has cards, with cards named more often than not."""
    rng = random.Random(77)
    set_, profile = Command.NEOPROF_SET, Command.NEOPROF_PROFILE_GET
    commands = (Command.NEOPROF_GET, set_, set_, set_, profile)
    sent = 0
    with driver(), cards() as connection:
        raw = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
        raw.bind((0, 0))
        raw.setblocking(False)
        family = connection._family
        number_of = [name for name, _ in ATTRIBUTES].index("TIERD_A_CARD")
        card = struct.pack("=HHI", 8, number_of, FULL)
        for number in range(messages):
            text = message(rng, family, number)
            if rng.random() < 0.7 and len(text) >= 20:
                command = struct.pack("=BBH", rng.choice(commands), 1, 0)
                header = struct.pack("=IHHII", len(text) + 8, family, 5, number, 0)
                text = header + command + card + text[20:]
            with contextlib.suppress(OSError):
                raw.sendto(text, (0, 0))
                sent += 1
            if number % 32 == 0:
                with contextlib.suppress(OSError):
                    while raw.recv(1 << 16):
                        pass
        raw.close()
        np_lab.until(
            lambda: connection.card(FULL).state is not CardState.COUNTING,
            "it counts for nobody",
        )
        np_lab.decode_node()
        connection.set(
            FULL,
            do=CardDo.RESET,
            ranges=[],
            threshold=9,
            track=3,
            unit_log2=12,
            downsample=0,
            flags=CardFlags(0),
            error_rank=0,
            epoch_us=0,
            enable=True,
        )
        drained(connection, FULL)
        # One that nobody may ask: an unprivileged user.
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.setgid(65534)
                os.setuid(65534)
                code = 0 if attempt(lambda: Cards.open().cards()) else 2
            finally:
                os._exit(code)
        denied = os.waitpid(pid, 0)[1] == 0
    return {"ok": sent > messages / 2 and denied, "sent": sent, "denied": denied}


CHECKS = {
    check.__name__: check
    for check in (
        silence,
        host_gone,
        pulled,
        owner_dies,
        removal,
        contended,
        separate,
        reload,
        registers,
        fuzz,
    )
}
CHECKS |= {
    "reload_often": functools.partial(reload, 50),
    "fuzz_long": functools.partial(fuzz, 50_000),
}

if __name__ == "__main__":
    sys.exit(lab.main(CHECKS))
