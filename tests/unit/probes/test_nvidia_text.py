from __future__ import annotations

import pytest

from tokpit.probes import nvidia_text as text

MIXED = "GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-one)\nGPU 1: NVIDIA RTX A6000 (UUID: GPU-two)\n"
PERFORMANCE = """\
==============NVSMI LOG==============
Attached GPUs                             : 2
GPU 00000000:01:00.0
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : Not Active
        SW Thermal Slowdown               : Not Active
    Clocks Event Reasons Counters
        SW Power Capping                  : {cap0} us
        Sync Boost                        : 0 us
        SW Thermal Slowdown               : {hot0} us
        HW Thermal Slowdown               : 0 us
        HW Power Braking                  : 0 us
    Sparse Operation Mode                 : N/A
GPU 00000000:02:00.0
    Clocks Event Reasons Counters
        SW Power Capping                  : 5 us
        SW Thermal Slowdown               : 0 us
"""


def test_mig_instances_are_listed_under_their_gpu() -> None:
    listing = (
        "GPU 0: NVIDIA H100 PCIe (UUID: GPU-q)\n"
        "  MIG 1g.10gb     Device  0: (UUID: MIG-r)\n"
        "  MIG 2g.20gb     Device  1: (UUID: MIG-s)\n"
        "GPU 1: NVIDIA H100 PCIe (UUID: GPU-t)\n"
    )
    first, second = text.parse_list(listing)
    assert first.instances == (("1g.10gb", "MIG-r"), ("2g.20gb", "MIG-s"))
    assert (second.index, second.uuid, second.instances) == (1, "GPU-t", ())


@pytest.mark.parametrize("env", [{}, {"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}])
def test_mixed_gpus_without_a_device_order_are_told(env: dict[str, str]) -> None:
    problem = text.order_problem(text.parse_list(MIXED), env)
    assert problem is not None
    assert problem.code == "GPU_ORDER"


@pytest.mark.parametrize(
    ("listing", "env"),
    [
        (MIXED, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}),
        (MIXED, {"CUDA_VISIBLE_DEVICES": "GPU-two"}),
        (MIXED.replace("RTX A6000", "GeForce RTX 4090"), {"CUDA_VISIBLE_DEVICES": "0"}),
    ],
)
def test_a_certain_order_is_no_problem(listing: str, env: dict[str, str]) -> None:
    assert text.order_problem(text.parse_list(listing), env) is None


def test_past_throttling_counts_only_what_was_added() -> None:
    before = text.parse_throttle_counters(PERFORMANCE.format(cap0=1000, hot0=4_000_000))
    after = text.parse_throttle_counters(PERFORMANCE.format(cap0=9_001_000, hot0=5_500_000))
    assert before[0] == {"sw-power-cap": 0.001, "sw-thermal": 4.0, "hw-thermal": 0.0, "power-brake": 0.0}
    (problem,) = text.throttled_between(before, after, 30.0)
    assert (problem.code, problem.index, problem.info) == ("GPU_THROTTLED_PAST", 0, False)
    assert "1.50 of 30 s (5.0%)" in problem.text
    assert "void" in problem.text


def test_a_short_slowdown_leaves_the_measurement_valid() -> None:
    before = text.parse_throttle_counters(PERFORMANCE.format(cap0=0, hot0=0))
    after = text.parse_throttle_counters(PERFORMANCE.format(cap0=0, hot0=300_000))
    (problem,) = text.throttled_between(before, after, 30.0)
    assert problem.info
    assert "void" not in problem.text


def test_old_throttling_and_power_capping_alone_say_nothing() -> None:
    before = text.parse_throttle_counters(PERFORMANCE.format(cap0=0, hot0=7_000_000))
    after = text.parse_throttle_counters(PERFORMANCE.format(cap0=29_000_000, hot0=7_000_000))
    assert text.throttled_between(before, after, 30.0) == ()


def test_a_gpu_off_the_bus_is_found_in_a_message_of_several_lines() -> None:
    log = (
        "Nov 02 11:20:01 gpu9 kernel: NVRM: The NVIDIA GPU 0000:c1:00.0\n"
        "               NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
        "Nov 02 11:20:03 gpu9 kernel: NVRM: Xid (PCI:0000:41:00): 45, pid=88123, name=VLLM::Worker_TP, Ch 00000012\n"
    )
    xids = text.parse_kernel_log(log)
    assert [(xid.address, xid.code, xid.pid) for xid in xids] == [
        ("0000:c1:00.0", None, None),
        ("0000:41:00.0", 45, 88123),
    ]
    lost, other = text.xid_problems(xids, {"0000:c1:00.0": 6})
    assert (lost.code, lost.index) == ("GPU_LOST", 6)
    assert (other.code, other.index) == ("GPU_XID", None)
    assert "88123" in other.text


@pytest.mark.parametrize(("code", "named"), [(79, "GPU_LOST"), (119, "GPU_LOST"), (63, "GPU_ECC"), (13, "GPU_XID")])
def test_what_an_xid_means(code: int, named: str) -> None:
    xids = text.parse_kernel_log(
        f"[ 12.3] NVRM: Xid (PCI:0000:5f:00): {code}, pid='<unknown>', name=<unknown>, GPU error\n"
    )
    assert [p.code for p in text.xid_problems(xids, {})] == [named]


def test_other_kernel_messages_are_no_gpu_errors() -> None:
    assert text.parse_kernel_log("usb 1-2: fallen off the bus\nNVRM: loading NVIDIA UNIX x86_64 Kernel Module\n") == ()
