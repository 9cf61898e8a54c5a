"""The kinds of GPU tokpit can read: one line each, asked in this order until one is there."""

from __future__ import annotations

from collections.abc import Callable

from tokpit.probes.amd import AmdReader
from tokpit.probes.gpu import GpuReader
from tokpit.probes.nvidia_reader import NvidiaReader

READERS: tuple[Callable[[], GpuReader], ...] = (NvidiaReader, AmdReader)
