# SPDX-License-Identifier: Apache-2.0
"""Event tables: every encoding against the vendors' documents, and the choice on a CPU."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tierd.ebpf.events import (
    Cpu,
    Pmu,
    choose,
    find_model,
    find_pmu,
    load_tables,
    parse_tables,
    read_cpu,
)
from tierd.ebpf.sampler import EventPlan
from tierd.errors import ConfigError, UnavailableError
from tierd.sources import pmu

# What the documents say, written down from them and not from the tables.
# Intel: EventCode, UMask and MSRIndex of the perfmon event lists by CPU model.
LOAD_LATENCY = ("MEM_TRANS_RETIRED.LOAD_LATENCY", 0xCD, 0x01, 0x3F6)
L3_MISS = ("MEM_LOAD_RETIRED.L3_MISS", 0xD1, 0x20, None)
STORES = ("MEM_INST_RETIRED.ALL_STORES", 0xD0, 0x82, None)
CXL = ("MEM_LOAD_RETIRED.LOCAL_CXL_MEM", 0xD1, 0x80, None)
INTEL = {
    0x5E: ("SKL/events/skylake_core.json", {LOAD_LATENCY, L3_MISS, STORES}),
    0x55: ("SKX/events/skylakex_core.json", {LOAD_LATENCY, L3_MISS, STORES}),
    0x7E: ("ICL/events/icelake_core.json", {LOAD_LATENCY, L3_MISS, STORES}),
    0x8C: ("TGL/events/tigerlake_core.json V1.08", {LOAD_LATENCY, L3_MISS, STORES}),
    0xA7: ("RKL/events/rocketlake_core.json V1.01", {LOAD_LATENCY, L3_MISS, STORES}),
    0x6A: ("ICX/events/icelakex_core.json", {LOAD_LATENCY, L3_MISS, STORES}),
    0x8F: ("SPR/events/sapphirerapids_core.json", {LOAD_LATENCY, L3_MISS, STORES}),
    0xCF: ("EMR/events/emeraldrapids_core.json V1.03", {LOAD_LATENCY, L3_MISS, STORES}),
    0xAD: ("GNR/events/graniterapids_core.json V1.21", {LOAD_LATENCY, L3_MISS, STORES, CXL}),
}
# Which list is which model's: perfmon's mapfile.csv (family 6).
MAPFILE = {
    "SKL/": {0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6},
    "SKX/": {0x55},
    "CLX/": {0x55},
    "ICL/": {0x7D, 0x7E},
    "TGL/": {0x8C, 0x8D},
    "RKL/": {0xA7},
    "ICX/": {0x6A, 0x6C},
    "SPR/": {0x8F},
    "EMR/": {0xCF},
    "GNR/": {0xAD, 0xAE},
}
# AMD: IbsOpCtl, figure 13-22 of the Architecture Programmer's Manual, volume 2 (24593).
IBS_OP_CNT_CTL, IBS_OP_L3_MISS_ONLY = 1 << 19, 1 << 16
IBS_OP_MAX_CNT = 0x7F << 20 | 0xFFFF
IBS_OP_EN, IBS_OP_VAL = 1 << 17, 1 << 18
# Load latency of Zen 5, not in that manual: Linux d20610c19b4a puts a threshold of 128 to
# 2048 cycles from config1:0-11 into IbsOpCtl's bits 59-62 and turns on by bit 63.
LDLAT_LEAST, LDLAT_MOST = 128, 2048
OPS, L3_MISSES = (IBS_OP_CNT_CTL, False), (IBS_OP_CNT_CTL | IBS_OP_L3_MISS_ONLY, False)
LDLAT = (IBS_OP_CNT_CTL, True)
AMD = {
    (0x17, 0x31): {OPS},
    (0x17, 0x71): {OPS},
    (0x19, 0x01): {OPS, L3_MISSES},
    (0x19, 0x11): {OPS, L3_MISSES},
    (0x1A, 0x02): {OPS, L3_MISSES, LDLAT},
}


@pytest.mark.parametrize("model", INTEL)
def test_intel_encodings_are_the_vendors(model):
    document, expected = INTEL[model]
    table = find_model(Cpu("GenuineIntel", 6, model), load_tables())
    assert document in table.document
    found = {
        (e.name, e.config & 0xFF, e.config >> 8, 0x3F6 if e.threshold else None)
        for e in table.events
    }
    assert found == expected
    # PEBS is what records a data address, and the threshold goes through format/ldlat.
    assert all(e.precise == 2 and e.user_only for e in table.events)
    assert all((e.needs == "ldlat") == e.threshold for e in table.events)


@pytest.mark.parametrize("family, model", AMD)
def test_amd_encodings_are_the_vendors(family, model):
    table = find_model(Cpu("AuthenticAMD", family, model), load_tables())
    assert table.pmu == "ibs_op"
    assert "24593" in table.document
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


def test_every_intel_model_is_compared_with_its_own_list():
    for table in (t for t in load_tables() if t.vendor == "GenuineIntel"):
        lists = [models for folder, models in MAPFILE.items() if folder in table.document]
        assert table.models == set().union(*lists), table.name


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


def test_every_table_entry_is_compared_with_a_document():
    intel = {m for t in load_tables() if t.vendor == "GenuineIntel" for m in t.models}
    for table in load_tables():
        assert table.document
        if table.vendor == "GenuineIntel":
            assert table.models & set(INTEL), table.name
        else:
            assert any(f == table.family and m in table.models for f, m in AMD), table.name
    assert set(INTEL) <= intel


def test_no_cpu_is_in_two_tables():
    seen = [(t.vendor, t.family, m) for t in load_tables() for m in t.models]
    assert len(seen) == len(set(seen))


def test_zen_1_and_unknown_cpus_have_no_table():
    for cpu in (Cpu("AuthenticAMD", 0x17, 0x01), Cpu("GenuineIntel", 6, 0x2A), Cpu("X", 1, 1)):
        with pytest.raises(UnavailableError, match="no event table knows this CPU"):
            find_model(cpu, load_tables())


def test_attributes_of_a_load_latency_event():
    table = find_model(Cpu("GenuineIntel", 6, 0x8F), load_tables())
    event = next(e for e in table.events if e.role == "load-latency")
    data = event.attr(4, latency_cycles=200, physical=True).encode()
    kind, size, config, period, sample = struct.unpack_from("=IIQQQ", data)
    assert (kind, size, config, period) == (4, 128, 0x01CD, event.period)
    # PERF_SAMPLE_TID | TIME | ADDR | PHYS_ADDR, and no DATA_SRC: from Sapphire Rapids on
    # the kernel refuses load latency with a data source outside a group.
    assert sample == 1 << 1 | 1 << 2 | 1 << 3 | 1 << 19
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
    for release, mode in (("6.1.0-56-amd64", "raw"), ("6.3.0", "auto"), ("6.12.9", "auto")):
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


HEAD = '[[model]]\nname="a"\nvendor="v"\nfamily=1\nmodels=[1]\npmu="cpu"\ndocument="d"\n'
EVENT = '[[model.event]]\nrole="l3-miss"\nname="n"\nevent=1\numask=2\nperiod=16\n'


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
    ],
)
def test_mistakes_in_tables_tell_their_place(text, place):
    with pytest.raises(ConfigError, match=place) as caught:
        parse_tables(text, "some.toml")
    assert "some.toml" in str(caught.value)
