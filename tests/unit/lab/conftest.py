# SPDX-License-Identifier: Apache-2.0
"""The rooms of the lab's QEMU plugin, compiled from fpga/sim/plugin without QEMU."""

from __future__ import annotations

import importlib.util
import subprocess
from typing import Any

import cffi
import pytest
from neoprof_build import FPGA

PLUGIN = FPGA / "sim/plugin"


DECLARATIONS = """
struct cache { unsigned int line_log2; ...; };
enum cache_event { CACHE_HIT, CACHE_MISS, CACHE_MISS_EVICT };
int cache_init(struct cache *cache, uint64_t bytes, unsigned int ways, unsigned int line);
void cache_free(struct cache *cache);
void cache_clear(struct cache *cache);
static int replay(struct cache *cache, const uint64_t *addresses, const uint8_t *stores,
                  size_t count, uint8_t *events, uint64_t *evicted);

struct hdm_decoder { uint64_t base, size, skip, device; };
struct hdm { struct hdm_decoder decoders[10]; unsigned int count; };
int hdm_write(struct hdm *hdm, uint8_t *block);
int hdm_read(struct hdm *hdm, const uint8_t *block);
_Bool hdm_to_device(const struct hdm *hdm, uint64_t host, uint64_t *device);
_Bool hdm_to_host(const struct hdm *hdm, uint64_t device, uint64_t *host);

struct card_options {
    const char *library; unsigned int log2_width, ring, cycles_per_100us; struct hdm hdm; ...; };
struct card { uint64_t reads, writes, unmapped, skipped; _Bool bounded; ...; };
int card_open(struct card *card, const struct card_options *options, _Bool counted,
              uint8_t *block);
void card_close(struct card *card);
void card_advance(struct card *card, uint64_t ns);
_Bool card_request(struct card *card, uint64_t host, _Bool write);
static uint64_t card_register(struct card *card, uint32_t offset);
static int card_set(struct card *card, uint32_t offset, uint64_t value);
static uint64_t card_cycles(struct card *card);

int samples_open(const char *window);
void samples_miss(unsigned int node, uint64_t page, _Bool store);
struct profile_block;
struct profile_block *profile_block(uint64_t vaddr, uint32_t instructions);
void profile_executed(struct profile_block *block, unsigned int owner);
void profile_clear(void);
int profile_write(const char *path);
#define NPW_SAMPLES_PERIOD ...
#define NPW_SAMPLES_HEAD ...
#define NPW_SAMPLES_RING ...
#define NPW_SAMPLES_SLOTS ...
#define NPW_SAMPLES_END ...
"""


SOURCE = """
#include "cache.h"
#include "card.h"
#include "profile.h"
#include "samples.h"

#include "../../include/neoprof_window.h"

static int replay(struct cache *cache, const uint64_t *addresses, const uint8_t *stores,
                  size_t count, uint8_t *events, uint64_t *evicted)
{
    for (size_t i = 0; i < count; i++)
        events[i] = cache_access(cache, addresses[i], stores[i], &evicted[i]);
    return 0;
}
static uint64_t card_register(struct card *card, uint32_t offset)
{
    uint64_t value = 0;
    return card->read(card->card, offset, 8, &value) ? UINT64_MAX : value;
}
static int card_set(struct card *card, uint32_t offset, uint64_t value)
{
    return card->write(card->card, offset, 8, value);
}
static uint64_t card_cycles(struct card *card)
{
    return card->cycles(card->card);
}
"""


@pytest.fixture(scope="session")
def rooms(built: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The compiled rooms: an object with `ffi` and `lib`."""
    folder = tmp_path_factory.mktemp("rooms")
    ffi = cffi.FFI()
    ffi.cdef(DECLARATIONS)
    ffi.set_source(
        "lab_rooms",
        SOURCE,
        sources=[
            str(PLUGIN / name) for name in ("cache.c", "hdm.c", "card.c", "profile.c", "samples.c")
        ],
        include_dirs=[str(PLUGIN)],
        libraries=["dl"],
        extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-fsanitize=undefined"],
        extra_link_args=["-fsanitize=undefined"],
    )
    path = ffi.compile(tmpdir=str(folder))
    spec = importlib.util.spec_from_file_location("lab_rooms", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def built() -> None:
    """The model's library, which the card room loads."""
    subprocess.run(["make", "-s", "-C", str(FPGA), "lab"], check=True)
