# SPDX-License-Identifier: Apache-2.0
# The two commands of a fresh machine: `make demo` and `make test`. Both set up what
# they need first (as root: packages by apt and pip, see config/setup.sh).

PYTHON := .venv/bin/python
# Not the two headers that scripts of fpga/ write.
C_FILES = $(shell git ls-files '*.c' '*.cc' '*.h' ':!fpga/model/np_seeds.h' \
	':!fpga/include/neoprof_regs.h')
# Two workers, with one guest each at a time (tests/conftest.py).
PYTEST_FLAGS ?= --numprocesses 2 --no-loadscope-reorder --durations 25
# Byte code is kept: both workers would make it anew of every test, whose assertions are rewritten.
PYTEST := PYTHONDONTWRITEBYTECODE= $(PYTHON) -m pytest
# The kernel module is tested on 6.1 as well, which Debian 12 has.
DEBIAN := $(shell . /etc/os-release && echo $$ID-$$VERSION_ID)

all: demo

# The demo alone needs less than all else.
SETUP_FLAGS := $(if $(filter-out demo,$(or $(MAKECMDGOALS),demo)),,--demo)
ifneq ($(filter test soak bench bench-short bench-parts,$(MAKECMDGOALS)),)
SETUP_FLAGS := $(if $(filter debian-12,$(DEBIAN)),--with-6.1)
endif
# Byte code is written here because lab guests see this tree read-only.
setup:
	@config/setup.sh $(SETUP_FLAGS)
	@PYTHONDONTWRITEBYTECODE= $(PYTHON) -m compileall -q daemon tests/demo tests/lab fpga/python

workloads: setup
	@$(MAKE) --no-print-directory -s -C tests/workloads
	@$(MAKE) --no-print-directory -s -C tests/workloads/suite
	@$(MAKE) --no-print-directory -s -C ebpf
	@$(MAKE) --no-print-directory -s -C fpga lab PYTHON=$(CURDIR)/$(PYTHON)

# Boots a virtual machine with DRAM and CXL-like memory, whose hot pages are scattered over the slow
# part, and lets tierd find and move them by accessed bits. A few minutes.
demo: setup
	@$(MAKE) --no-print-directory -s -C tests/workloads
	@$(PYTHON) tests/demo/demo.py --layout scattered --module auto --until 0.9 $(DEMO_FLAGS)

# The sources of accesses side by side, in a machine with a simulated NeoProf card: the hot set
# moves half-way. Slow.
demo-sources: workloads
	@$(PYTHON) tests/demo/demo.py --machine dram-cxl-card --layout scattered \
		--leave-free 160M --without-seconds 0 --with-seconds 24 --move-after 13 --report-every 0.5 \
		--source neoprof --source scan --source damon \
		--timeout 3600 $(DEMO_FLAGS)

# The kernel module for the running kernel, or with KERNEL=release for another one.
module: setup
	@$(MAKE) --no-print-directory -C kmod

# The client libraries that let GPU programs lend and borrow memory.
gpu: setup
	@$(MAKE) --no-print-directory -C daemon/native/gpu

# Lint and types first, so that the last line is the test runner's.
test: lint workloads
	@$(MAKE) --no-print-directory -s -j2 -C fpga build coverage PYTHON=$(CURDIR)/$(PYTHON)
	@$(PYTEST) $(PYTEST_FLAGS)

lint: setup
	@$(PYTHON) -m ruff check daemon tests docs config fpga/python
	@$(PYTHON) -m ruff format --check --quiet daemon tests docs config fpga/python
	@$(PYTHON) -m mypy
	@$(PYTHON) config/generate.py --check
	@$(PYTHON) tests/lint/layers.py
	@$(PYTHON) tests/lint/house.py
	@.venv/bin/clang-format --dry-run -Werror $(C_FILES)
	@$(MAKE) --no-print-directory -s -C fpga lint PYTHON=$(CURDIR)/$(PYTHON)
	@shellcheck config/setup.sh kmod/kernels.sh config/debian/build.sh config/debian/*.p*[mt] \
		tests/lab/tierd_lab/guestbin/* tests/lab/kernel-builds/build.sh tests/bench/tiering/guest/*.sh
	@$(PYTHON) -m reuse lint --quiet 2>/dev/null || $(PYTHON) -m reuse lint

# Over a million wrong inputs for what reads files, sockets and the kernel's messages; `make test`
# has a twentieth of them.
FUZZ_TESTS := tests/unit/config/test_config_fuzz.py tests/unit/control/test_control_protocol.py \
	tests/unit/recording/test_recording_fuzz.py tests/unit/kmod/test_netlink_fuzz.py
fuzz: setup
	@TIERD_FUZZ=1 $(PYTHON) -m pytest -q -s --show-capture=no $(FUZZ_TESTS)

# What is too slow for each change, before a release (docs/develop/tests.md): each check on each kernel,
# more rounds of what `make test` does a few of, the module's torture on a kernel that checks itself,
# the service for minutes while all about it changes, the million wrong inputs.
soak: workloads fuzz lab-kernels
	@$(MAKE) --no-print-directory -s -j2 -C fpga test PYTHON=$(CURDIR)/$(PYTHON)
	@$(PYTEST) $(PYTEST_FLAGS) -m soak

# Recordings that replays must agree with, made anew: only where a decision is meant to be another.
# GOLDEN_FLAGS: --times 20 --folder build/golden makes long ones elsewhere, before a larger change.
golden: setup
	@PYTHONPATH=daemon:tests/support $(PYTHON) tests/support/golden.py $(GOLDEN_FLAGS)

# Figures, not tests: heat and the loop's CPU on this host, the mover in a lab guest.
bench-parts: workloads
	@$(PYTHON) tests/bench/native_heat.py
	@$(PYTHON) tests/bench/loop_cpu.py
	@$(PYTHON) tests/bench/sizes.py
	@$(PYTHON) tests/bench/recording.py
	@$(PYTHON) tests/bench/service_idle.py
	@.venv/bin/tierd-lab run --machine dram-cxl -- $(PYTHON) tests/bench/native_mover.py
	@$(MAKE) --no-print-directory -C fpga bench PYTHON=$(CURDIR)/$(PYTHON)
	@$(PYTHON) tests/bench/ebpf_cost.py build/workloads/touch
	@$(PYTHON) tests/bench/ebpf_service.py build/workloads/touch
	@$(PYTHON) tests/bench/kmod.py
	@$(PYTHON) tests/bench/gpu_huvm.py --scale 8 --only cases
	@$(PYTHON) tests/bench/gpu || [ $$? -eq 5 ]

# tierd against the kernel's own tiering and others, in modelled time: every workload under every
# method, 14 to 67 modelled seconds each. Hours; a run that was stopped goes on where it was, also on
# another machine. Results are in docs/research/benchmarks. BENCH_FLAGS: tests/bench/tiering/matrix.py --help.
bench: workloads module-lab
	@$(PYTHON) tests/bench/tiering/matrix.py $(BENCH_FLAGS)

# The same with a third as much to do, of which the way to a good placement is a larger part. Results
# are in docs/research/benchmarks/short.
bench-short: workloads module-lab
	@$(PYTHON) tests/bench/tiering/matrix.py --scale 1 --folder docs/research/benchmarks/short $(BENCH_FLAGS)

# One workload under three methods.
bench-quick: workloads module-lab
	@$(PYTHON) tests/bench/tiering/matrix.py --quick --folder build/bench-quick $(BENCH_FLAGS)

# The kernel module for the lab's guests.
module-lab: setup
	@$(MAKE) --no-print-directory -s -C kmod \
		KERNEL=$$($(PYTHON) -c 'from tierd_lab.host import find_kernel as f; print(f().version)')

# Kernels for the lab that Debian has not: one that checks itself (KASAN, lockdep), one with idle page
# tracking. Half an hour of two CPUs each, once; LAB_KERNELS: debug or idle alone.
lab-kernels:
	@tests/lab/kernel-builds/build.sh $(LAB_KERNELS)

# The packages tierd and tierd-dkms in build/deb, and the wheel in build/wheel.
deb: setup
	@config/debian/build.sh

wheel: setup
	@rm -rf build/wheel
	@$(PYTHON) -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation \
		--wheel-dir build/wheel .
	@ls build/wheel/*.whl

clean:
	rm -rf build .venv .pytest_cache .mypy_cache .ruff_cache
	find daemon tests fpga -name __pycache__ -prune -exec rm -rf {} +
	rm -f daemon/tierd/_native*.so

.PHONY: all setup soak workloads demo demo-sources gpu module module-lab bench bench-short bench-parts \
	bench-quick lab-kernels deb wheel test lint fuzz golden clean
