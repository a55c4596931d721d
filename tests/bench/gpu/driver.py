# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver by ctypes: what the checks need of it, and nothing to install."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

CHUNK = 2 << 20
PREFERRED, NO_PREFERRED, ACCESSED_BY = 3, 4, 5
"""CUmem_advise."""


class NoGpuError(Exception):
    """There is no driver here, or it has no device."""


class DriverError(Exception):
    """A call failed; the text has its name and CUresult."""


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


HOST, DEVICE = Location(2, 0), Location(1, 0)
U64, SIZE = ctypes.c_uint64, ctypes.c_size_t


class Cuda:
    """The driver with the primary context of device 0 current.

    Raises:
        NoGpuError: no library of that name, or no device.
    """

    def __init__(self, path: str = "libcuda.so.1") -> None:
        try:
            self.library = ctypes.CDLL(path)
        except OSError as error:
            raise NoGpuError(f"{path} cannot be opened ({error})") from None
        self.context = ctypes.c_void_p()
        try:
            self("cuInit", 0)
            self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        except DriverError as error:
            raise NoGpuError(f"the driver does not start ({error})") from None
        self.enter()

    def __call__(self, name: str, *args: object) -> None:
        """One call; raises DriverError unless it succeeds."""
        status = getattr(self.library, name)(*args)
        if status:
            raise DriverError(f"{name}: CUDA error {status}")

    def has(self, name: str) -> bool:
        """Whether the driver exports a function."""
        return hasattr(self.library, name)

    def enter(self) -> None:
        """Make the context the calling thread's."""
        self("cuCtxPushCurrent_v2", self.context)

    def name(self) -> str:
        """The device's name."""
        text = ctypes.create_string_buffer(128)
        self("cuDeviceGetName", text, 128, 0)
        return text.value.decode()

    def attribute(self, number: int) -> int:
        """A CUdevice_attribute of device 0."""
        value = ctypes.c_int()
        self("cuDeviceGetAttribute", ctypes.byref(value), number, 0)
        return value.value

    def free(self) -> int:
        """Free bytes of the GPU."""
        free, total = SIZE(), SIZE()
        self("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def managed(self, size: int) -> int:
        """The address of new managed memory."""
        out = U64()
        self("cuMemAllocManaged", ctypes.byref(out), SIZE(size), 1)
        return out.value

    def plain(self, size: int) -> int:
        """The address of memory that stays on the GPU."""
        out = U64()
        self("cuMemAlloc_v2", ctypes.byref(out), SIZE(size))
        return out.value

    def drop(self, addr: int) -> None:
        """Free memory."""
        self("cuMemFree_v2", U64(addr))

    def stream(self) -> ctypes.c_void_p:
        """A stream that does not wait for the default one."""
        out = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(out), 1)
        return out

    def go(self, addr: int, size: int, to: Location, stream: object = None) -> None:
        """Prefetch."""
        if self.has("cuMemPrefetchAsync_v2"):
            self("cuMemPrefetchAsync_v2", U64(addr), SIZE(size), to, 0, stream)
        else:
            self("cuMemPrefetchAsync", U64(addr), SIZE(size), -1 if to is HOST else 0, stream)

    def advise(self, addr: int, size: int, advice: int, at: Location = HOST) -> None:
        """Advice of one of the numbers above."""
        if self.has("cuMemAdvise_v2"):
            self("cuMemAdvise_v2", U64(addr), SIZE(size), advice, at)
        else:
            self("cuMemAdvise", U64(addr), SIZE(size), advice, -1 if at is HOST else 0)

    def sync(self, stream: object = None) -> None:
        """Wait for a stream, or for everything."""
        if stream is None:
            self("cuCtxSynchronize")
        else:
            self("cuStreamSynchronize", stream)

    def fill(self, addr: int, size: int, value: int) -> None:
        """Every byte, by the GPU."""
        self("cuMemsetD8Async", U64(addr), value, SIZE(size), None)
        self.sync()

    def wrong(self, addr: int, size: int, value: int) -> int:
        """Chunks whose first 64 bytes are not all `value`."""
        want, found, wrong = bytes([value]) * 64, ctypes.create_string_buffer(64), 0
        for at in range(addr, addr + size, CHUNK):
            self("cuMemcpyDtoHAsync_v2", found, U64(at), SIZE(64), None)
            self.sync()
            wrong += found.raw != want
        return wrong


def seconds(act: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def median_us(act: Callable[[], object], times: int) -> float:
    """Microseconds of a call: the median."""
    return round(sorted(seconds(act) for _ in range(times))[times // 2] * 1e6, 1)
