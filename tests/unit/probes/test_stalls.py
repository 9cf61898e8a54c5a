from __future__ import annotations

import subprocess

import pytest

from tokpit.probes import machine, stalls

_READINGS = """cpu  1000 0 500 8000 100 0 50 200 0 0
cpu  1040 0 520 8030 100 0 50 210 0 0
some avg10=12.50 avg60=3.00 avg300=1.00 total=123
full avg10=8.00 avg60=1.00 avg300=0.30 total=99
"""


def test_steal_is_of_the_second_between_the_readings_and_pressure_of_ten() -> None:
    found = stalls.parse(_READINGS)
    assert found.steal == pytest.approx(10 / 100)
    assert found.memory == 0.125


@pytest.mark.parametrize("text", ["", "cpu 1 2\n", "bash: head: not found", _READINGS.splitlines()[0]])
def test_what_the_kernel_does_not_tell_is_not_known(text: str) -> None:
    assert stalls.parse(text) == stalls.Stalls()


def test_this_kernel_is_understood() -> None:
    text = subprocess.run(["sh", "-c", stalls.SCRIPT], capture_output=True, text=True, check=True).stdout
    found = stalls.parse(text)
    assert found.steal is not None
    assert 0 <= found.steal <= 1
    kernel = machine.parse(subprocess.run(["sh", "-c", machine.SCRIPT], capture_output=True, text=True).stdout)
    assert kernel["kernel"][0].isdigit()


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("580.95.05\n6.8.0-45-generic\n", "580.95.05"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec\n6.1.0\n", "550.144.03"),
        ("amdgpu 6.12.12\n6.8.0\n", "amdgpu 6.12.12"),
        ("\n6.8.0\n", None),
    ],
)
def test_the_driver_is_read_from_the_kernel_without_its_tools(text: str, driver: str | None) -> None:
    assert machine.parse(text).get("driver") == driver
