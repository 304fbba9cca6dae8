"""Clocks, temperature, power and throttle reasons of the GPU while something is timed, from NVML (extra `gpu`)."""

from __future__ import annotations

import time
from typing import Any

EVERY = 0.05  # seconds between two samples at least: a query costs the host about a millisecond
REASONS = {  # bit of nvmlClocksEventReasons → name (nvml.h)
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}


class Clocks:
    """`sample()` whenever there is time, `record()` at the end. `note` says why nothing is recorded, else it is empty."""

    def __init__(self) -> None:
        self.samples: list[dict[str, float]] = []
        self.reasons = 0
        self.note = ""
        self._next = 0.0
        try:
            import pynvml
        except ImportError:
            self.note = "clocks and temperature not recorded: nvidia-ml-py is not installed (extra gpu)"
            return
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = self._device()
        except pynvml.NVMLError as error:
            self.note = f"clocks and temperature not recorded: {error}"

    def _device(self) -> Any:
        """NVML's handle of the current CUDA device; its numbering is not CUDA's."""
        import torch

        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        return self._nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")

    def sample(self) -> None:
        """One reading, if the last one is old enough."""
        if self.note or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY
        n, handle = self._nvml, self._handle
        try:
            self.samples.append(
                {
                    "sm_mhz": n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM),
                    "memory_mhz": n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_MEM),
                    "celsius": n.nvmlDeviceGetTemperature(handle, n.NVML_TEMPERATURE_GPU),
                    "watts": n.nvmlDeviceGetPowerUsage(handle) / 1e3,
                }
            )
            self.reasons |= n.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        except n.NVMLError as error:
            self.note = f"clocks and temperature not recorded: {error}"

    def record(self) -> dict[str, Any]:
        """Least and most of each reading, and the throttle reasons seen at any time; empty without samples."""
        if not self.samples:
            return {}
        found: dict[str, Any] = {}
        for name in self.samples[0]:
            values = [sample[name] for sample in self.samples]
            found[name] = [min(values), max(values)]
        return found | {
            "throttled": [name for bit, name in REASONS.items() if self.reasons & bit],
            "samples": len(self.samples),
        }
