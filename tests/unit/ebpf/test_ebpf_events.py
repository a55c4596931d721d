# SPDX-License-Identifier: Apache-2.0
"""Event tables: every encoding against the vendors' documents, and the choice on a CPU."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tierd.core.errors import ConfigError, UnavailableError
from tierd.sources import pmu
from tierd.sources.ebpf.events import KINDS, choose, find_model, load_tables, parse_tables
from tierd.sources.ebpf.host import Cpu, Pmu, find_pmu, read_cpu
from tierd.sources.ebpf.table import EventPlan

# What the documents say, written down from them and not from the tables.
# Intel: EventCode, UMask and MSRIndex of the perfmon event lists, all with Data_LA 1.
LOAD_LATENCY = ("MEM_TRANS_RETIRED.LOAD_LATENCY", 0xCD, 0x01, 0x3F6)
L3_MISS = ("MEM_LOAD_RETIRED.L3_MISS", 0xD1, 0x20, None)
STORES = ("MEM_INST_RETIRED.ALL_STORES", 0xD0, 0x82, None)
CXL = ("MEM_LOAD_RETIRED.LOCAL_CXL_MEM", 0xD1, 0x80, None)
COMMON = {LOAD_LATENCY, L3_MISS, STORES}
# List, commit that was read: its events, and its models by perfmon's mapfile.csv (family 6).
INTEL = {
    ("SKL/events/skylake_core.json", "1c3042c13bbf"): (
        COMMON,
        {0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6},
    ),
    ("SKX/events/skylakex_core.json", "06a51fff41c3"): (COMMON, {0x55}),
    ("CLX/events/cascadelakex_core.json", "013877729c4e"): (COMMON, {0x55}),
    ("ICL/events/icelake_core.json", "46c3cc10b6df"): (COMMON, {0x7D, 0x7E}),
    ("TGL/events/tigerlake_core.json", "37fcb3c33742"): (COMMON, {0x8C, 0x8D}),
    ("RKL/events/rocketlake_core.json", "37fcb3c33742"): (COMMON, {0xA7}),
    ("ICX/events/icelakex_core.json", "37fcb3c33742"): (COMMON, {0x6A, 0x6C}),
    ("SPR/events/sapphirerapids_core.json", "78d6273c5463"): (COMMON, {0x8F}),
    ("EMR/events/emeraldrapids_core.json", "bffcec00a184"): (COMMON, {0xCF}),
    ("GNR/events/graniterapids_core.json", "ea490172a0f5"): (COMMON | {CXL}, {0xAD, 0xAE}),
}
# AMD: IbsOpCtl in the Architecture Programmer's Manual, volume 2 (24593), page 430.
IBS_OP_CNT_CTL, IBS_OP_L3_MISS_ONLY = 1 << 19, 1 << 16
IBS_OP_MAX_CNT = 0x7F << 20 | 0xFFFF
IBS_OP_EN, IBS_OP_VAL = 1 << 17, 1 << 18
# Load latency of Zen 5, not in that manual: AMD's change to Linux, d20610c19b4a, takes 128
# to 2048 cycles from config1 and itself sets IbsOpCtl's bits.
LDLAT_LEAST, LDLAT_MOST = 128, 2048
OPS, L3_MISSES = (IBS_OP_CNT_CTL, False), (IBS_OP_CNT_CTL | IBS_OP_L3_MISS_ONLY, False)
LDLAT = (IBS_OP_CNT_CTL, True)
AMD = {
    (0x17, 0x31): {OPS},
    (0x17, 0x71): {OPS},
    (0x19, 0x01): {OPS, L3_MISSES},
    (0x19, 0x11): {OPS, L3_MISSES},
    (0x1A, 0x02): {OPS, L3_MISSES, LDLAT},
    (0x1A, 0x70): {OPS, L3_MISSES, LDLAT},
}
# Generations by Linux's bsp_init_amd (Zen 1 with 0x50 to 0x5F of family 0x17, Zen 6 with
# 0x50 to 0x5F and 0x80 on of family 0x1A are not in the tables).
ZEN = {
    0x17: {*range(0x30, 0x50), *range(0x60, 0x80), 0x90, 0x91, *range(0xA0, 0xB0)},
    0x19: {*range(0xB0)},
    0x1A: {*range(0x30), *range(0x40, 0x50), *range(0x60, 0x80)},
}
BY = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}


@pytest.mark.parametrize("document", INTEL, ids=lambda document: document[0])
def test_intel_encodings_are_the_vendors(document):
    expected, models = INTEL[document]
    for model in models:
        table = find_model(Cpu("GenuineIntel", 6, model), load_tables())
        found = {
            (e.name, e.config & 0xFF, e.config >> 8, 0x3F6 if e.threshold else None)
            for e in table.events
        }
        assert found == expected
        for event in table.events:
            assert document in {
                (s.title.removeprefix("perfmon "), s.version) for s in event.sources
            }
            # PEBS is what records a data address, and the threshold goes through format/ldlat.
            assert event.precise == 2 and event.user_only
            assert (event.needs == "ldlat") == event.threshold


@pytest.mark.parametrize("family, model", AMD)
def test_amd_encodings_are_the_vendors(family, model):
    table = find_model(Cpu("AuthenticAMD", family, model), load_tables())
    assert table.pmu == "ibs_op"
    assert {(e.config, e.threshold) for e in table.events} == AMD[family, model]
    for event in table.events:
        assert event.precise == 0 and event.data_source and not event.user_only
        # The period goes by sample_period; the kernel itself enables and clears.
        assert not event.config & (IBS_OP_MAX_CNT | IBS_OP_EN | IBS_OP_VAL)
        # IbsOpMaxCnt is bits 26:4 of the period: 27 bits without the lowest four.
        assert event.period % 16 == 0 and event.step == 16 and event.period < 1 << 27
        wanted = "l3missonly" if event.config & IBS_OP_L3_MISS_ONLY else "cnt_ctl"
        assert event.needs == ("ldlat" if event.threshold else wanted)
        if event.threshold:
            assert event.latency == (LDLAT_LEAST, LDLAT_MOST)


def test_every_entry_names_its_source_and_it_is_the_vendors():
    for table in load_tables():
        for entry in (table, *table.events):
            assert entry.sources, entry.name
            for source in entry.sources:
                assert source.by == BY[table.vendor] and source.kind in KINDS
                assert source.title and source.version


def test_every_intel_model_is_read_from_its_own_list():
    for table in (t for t in load_tables() if t.vendor == "GenuineIntel"):
        assert [s.title for s in table.sources] == ["perfmon mapfile.csv"]
        for event in table.events:
            models = [INTEL[s.title.removeprefix("perfmon "), s.version][1] for s in event.sources]
            assert table.models == set().union(*models), table.name


def test_every_amd_event_is_in_the_manual_or_says_which_change_it_is_from():
    for table in (t for t in load_tables() if t.vendor == "AuthenticAMD"):
        for event in table.events:
            titles = " ".join(s.title for s in event.sources)
            wanted = "Load Latency Filtering" if event.threshold else "24593"
            assert wanted in titles, (table.name, event.name)
            assert {"change to Linux", "revision guide"} <= {s.kind for s in event.sources} or (
                not event.threshold
            )


def test_amd_generations_are_the_kernels():
    tables = {t.family: t.models for t in load_tables() if t.vendor == "AuthenticAMD"}
    assert tables == ZEN


def test_a_latency_that_the_core_cannot_have_is_refused_by_name():
    zen5 = find_model(Cpu("AuthenticAMD", 0x1A, 0x02), load_tables())
    event = next(e for e in zen5.events if e.threshold)
    assert event.attr(11, latency_cycles=LDLAT_LEAST).config1 == LDLAT_LEAST
    with pytest.raises(UnavailableError, match="128 to 2048 cycles, not 50"):
        event.attr(11, latency_cycles=50)
    intel = find_model(Cpu("GenuineIntel", 6, 0x8F), load_tables())
    event = next(e for e in intel.events if e.threshold)
    assert event.attr(4, latency_cycles=3).config1 == 3
    with pytest.raises(UnavailableError, match="3 to 65535"):
        event.attr(4, latency_cycles=2)


def test_every_table_is_compared_with_what_is_written_down_here():
    written = {m for _, models in INTEL.values() for m in models}
    assert written == {m for t in load_tables() if t.vendor == "GenuineIntel" for m in t.models}
    for table in (t for t in load_tables() if t.vendor == "AuthenticAMD"):
        assert any(f == table.family and m in table.models for f, m in AMD), table.name


def test_no_cpu_is_in_two_tables():
    seen = [(t.vendor, t.family, m) for t in load_tables() for m in t.models]
    assert len(seen) == len(set(seen))


def test_zen_1_zen_6_and_unknown_cpus_have_no_table():
    amd = [Cpu("AuthenticAMD", 0x17, 0x01), Cpu("AuthenticAMD", 0x1A, 0x50)]
    for cpu in (*amd, Cpu("GenuineIntel", 6, 0x2A), Cpu("X", 1, 1)):
        with pytest.raises(UnavailableError, match="no event table knows this CPU"):
            find_model(cpu, load_tables())


def test_attributes_of_a_load_latency_event():
    table = find_model(Cpu("GenuineIntel", 6, 0x8F), load_tables())
    event = next(e for e in table.events if e.role == "load-latency")
    data = event.attr(4, latency_cycles=200).encode()
    kind, size, config, period, sample = struct.unpack_from("=IIQQQ", data)
    assert (kind, size, config, period) == (4, 128, 0x01CD, event.period)
    # PERF_SAMPLE_TID | TIME | ADDR, and no DATA_SRC: from Sapphire Rapids on the kernel
    # refuses load latency with a data source outside a group.
    assert sample == 1 << 1 | 1 << 2 | 1 << 3
    (flags,) = struct.unpack_from("=Q", data, 40)
    assert flags >> 15 & 3 == 2  # precise_ip
    assert flags & 1 << 5  # exclude_kernel
    assert struct.unpack_from("=Q", data, 56) == (200,)  # config1: ldlat


def test_attributes_of_an_ibs_event():
    table = find_model(Cpu("AuthenticAMD", 0x19, 0x11), load_tables())
    data = table.events[0].attr(11, latency_cycles=200).encode()
    kind, _, config, _, sample = struct.unpack_from("=IIQQQ", data)
    assert (kind, config) == (11, 0x90000)
    assert sample & 1 << 15  # DATA_SRC
    (flags,) = struct.unpack_from("=Q", data, 40)
    assert not flags & (1 << 5 | 1 << 4) and flags >> 15 & 3 == 0
    assert struct.unpack_from("=Q", data, 56) == (0,)


def test_ibs_on_old_kernels_is_counted_raw(monkeypatch):
    """Until 6.3 a program may see an address that the sample does not have."""
    table = find_model(Cpu("AuthenticAMD", 0x19, 0x11), load_tables())
    event = table.events[0]
    plan = EventPlan(event.attr(11, latency_cycles=0), "on_load", event.writes, event.step)
    source = pmu.PmuSource(plans=(plan,))
    for release, mode in (("6.1.0-56-amd64", "raw"), ("6.3.0", "table"), ("6.12.9", "table")):
        monkeypatch.setattr(pmu.platform, "release", lambda release=release: release)
        assert source.mode() == mode


def fake_pmu(root: Path, name: str, number: int, formats: tuple[str, ...]) -> Path:
    folder = root / name
    (folder / "format").mkdir(parents=True)
    (folder / "type").write_text(f"{number}\n")
    for each in formats:
        (folder / "format" / each).write_text("config:0\n")
    return root


def cpuinfo(path: Path, vendor: str, family: int, model: int) -> Path:
    path.write_text(
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        "model name\t: Some CPU: the best\n\nprocessor\t: 1\nvendor_id\t: Other\n"
    )
    return path


def test_cpuinfo_is_read_from_its_first_cpu(tmp_path):
    cpu = read_cpu(cpuinfo(tmp_path / "c", "GenuineIntel", 6, 143))
    assert cpu == Cpu("GenuineIntel", 6, 143, "Some CPU: the best")


def test_a_cpuinfo_of_another_architecture_is_no_traceback(tmp_path):
    (tmp_path / "c").write_text("processor : 0\nCPU implementer : 0x41\n")
    with pytest.raises(UnavailableError, match="no vendor"):
        read_cpu(tmp_path / "c")


def test_doctor_names_the_event_of_the_cpu(tmp_path):
    found = pmu.would_use(
        cpuinfo=cpuinfo(tmp_path / "c", "GenuineIntel", 6, 0x8F),
        pmus=fake_pmu(tmp_path / "p", "cpu", 4, ("ldlat", "event", "umask")),
    )
    assert found.ok
    assert "MEM_LOAD_RETIRED.L3_MISS (config 0x20d1)" in found.reason


def test_doctor_names_the_event_even_without_a_pmu(tmp_path):
    (tmp_path / "p" / "software").mkdir(parents=True)
    found = pmu.would_use(
        cpuinfo=cpuinfo(tmp_path / "c", "AuthenticAMD", 0x19, 0x11), pmus=tmp_path / "p"
    )
    assert not found.ok
    assert "no PMU ibs_op" in found.reason and "software" in found.reason
    assert "IBS op, L3 misses only" in found.reason


def test_zen_3_falls_back_on_all_ops(tmp_path):
    """A core without the L3 filter shows no format/l3missonly."""
    root = fake_pmu(tmp_path, "ibs_op", 11, ("cnt_ctl",))
    table = find_model(Cpu("AuthenticAMD", 0x19, 0x01), load_tables())
    chosen, reasons = choose(table, find_pmu("ibs_op", root), ["l3-miss"])
    assert [e.role for e in chosen] == ["ops"]
    assert "l3missonly" in reasons["l3-miss"]


def test_wanted_roles_come_in_their_order(tmp_path):
    table = find_model(Cpu("GenuineIntel", 6, 0xAD), load_tables())
    pmu_here = Pmu(4, fake_pmu(tmp_path, "cpu", 4, ("ldlat",)) / "cpu")
    chosen, reasons = choose(table, pmu_here, ["stores", "cxl", "load-latency"])
    assert [e.role for e in chosen] == ["stores", "cxl", "load-latency"]
    assert [e.writes for e in chosen] == [True, False, False]
    assert reasons == {}


def test_an_old_kernel_without_ldlat_says_so(tmp_path):
    table = find_model(Cpu("GenuineIntel", 6, 0x55), load_tables())
    pmu_here = Pmu(4, fake_pmu(tmp_path, "cpu", 4, ()) / "cpu")
    chosen, reasons = choose(table, pmu_here, ["load-latency"])
    assert chosen == [] and "ldlat" in reasons["load-latency"]


SOURCE = '[source.d]\nby="v"\nkind="manual"\ntitle="t"\nversion="1"\n'
HEAD = f'{SOURCE}[[model]]\nname="a"\nvendor="v"\nfamily=1\nmodels=[1]\npmu="cpu"\nsource=["d"]\n'
EVENT = '[[model.event]]\nrole="l3-miss"\nsource=["d"]\nname="n"\nevent=1\numask=2\nperiod=16\n'


@pytest.mark.parametrize(
    "text, place",
    [
        ("x = ", "is no TOML"),
        (HEAD.replace('pmu="cpu"\n', "") + EVENT, "pmu: is missing"),
        (HEAD + EVENT + "what=1\n", r"event\[0\].what: is not known"),
        (HEAD + EVENT.replace("l3-miss", "loads"), "role: is none of"),
        (HEAD + EVENT + "step=10\n", "no multiple of 10"),
        (HEAD + EVENT + "latency=[9, 3]\n", r"latency: is not \[least, most\]"),
        (HEAD + EVENT.replace("umask=2\n", ""), "umask: is missing"),
        (HEAD.replace("[1]", '["x-y"]') + EVENT, "invalid literal"),
        (HEAD + EVENT.replace('source=["d"]\n', ""), "source: is missing"),
        (HEAD + EVENT.replace('["d"]', "[]"), r"event\[0\].source: names no source"),
        (HEAD + EVENT.replace('["d"]', '["e"]'), r"there is no \[source.e\]"),
        (HEAD.replace('"manual"', '"a blog"') + EVENT, "source.d.kind: is none of event list"),
        (HEAD.replace('version="1"\n', "") + EVENT, "source.d.version: is missing"),
    ],
)
def test_mistakes_in_tables_tell_their_place(text, place):
    with pytest.raises(ConfigError, match=place) as caught:
        parse_tables(text, "some.toml")
    assert "some.toml" in str(caught.value)
