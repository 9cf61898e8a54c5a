from __future__ import annotations

import pytest

from tokpit.domain.records import GpuSample
from tokpit.probes import gpu
from tokpit.probes.gpu import GpuPoll
from tokpit.probes.nvidia_reader import NvidiaReader, dead_sensor

FIELDS = ("index", "pci.bus_id", "utilization.gpu", "power.draw", "name")


def output(rows: str, status: int = 0, **more: str) -> str:
    parts = [f"@@tokpit gpus\n{rows}", f"@@tokpit status {status}"]
    parts += [f"@@tokpit {name}\n{text}" for name, text in more.items()]
    return "Last login: today\n" + "\n".join(parts) + "\n@@tokpit end\n"


def reader() -> NvidiaReader:
    made = NvidiaReader()
    made.fields = FIELDS
    return made


def codes(poll: GpuPoll) -> list[str]:
    return [problem.code for problem in poll.problems]


def test_an_unknown_field_is_replaced_then_dropped_and_the_others_stay() -> None:
    made = NvidiaReader()
    everything = made.fields
    assert made.read(output('Field "clocks_event_reasons.active" is not a valid field to query.', 2), 0.1).again
    assert made.fields[-2] == "clocks_throttle_reasons.active"
    assert made.read(output('Field "clocks_throttle_reasons.active" is not a valid field to query.', 2), 0.1).again
    assert made.fields == tuple(f for f in everything if f != "clocks_event_reasons.active")
    assert "clocks_" not in made.script().replace("clocks.", "")


def test_a_driver_that_knows_neither_alias_does_not_loop() -> None:
    made = NvidiaReader()
    for _ in range(60):
        bad = made.fields[0]
        if not made.read(output(f'Field "{bad}" is not a valid field to query.', 2), 0.1).again:
            break
        if not made.fields:
            break
    assert made.fields == ()


def test_a_sensor_that_fails_once_is_ignored_and_thrice_is_told() -> None:
    made = reader()
    good, bad = "0, 0000:01:00.0, 5, 240.10, X", "0, 0000:01:00.0, 5, [Unknown Error], X"
    assert [codes(made.read(output(row), 0.1)) for row in (good, bad, good, bad, bad)] == [[], [], [], [], []]
    poll = made.read(output(bad), 0.1)
    assert codes(poll) == ["GPU_UNREADABLE"]
    assert "3 times in a row" in poll.problems[0].text
    assert poll.gpus[0].power_w is None


def test_a_gpu_that_answered_before_and_is_gone_is_lost_once() -> None:
    made = reader()
    rows = "0, 0000:01:00.0, 5, 100, X\n1, 0000:02:00.0, 5, 100, X"
    assert codes(made.read(output(rows), 0.1)) == []
    gone = made.read(output("1, 0000:02:00.0, 5, 100, X"), 0.1)
    assert [(p.code, p.index) for p in gone.problems] == [("GPU_LOST", 0)]
    said = "Unable to determine the device handle for GPU 0000:01:00.0: Unknown Error\n1, 0000:02:00.0, 5, 100, X"
    assert codes(made.read(output(said, 15), 0.1)) == ["GPU_LOST"]
    assert codes(made.read(output("No devices were found", 6), 0.1)) == ["GPU_NONE", "GPU_LOST", "GPU_LOST"]


def test_a_dead_sensor_is_unknown_not_idle() -> None:
    made = reader()
    polls = [made.read(output(f"0, 0000:01:00.0, 0, {watt}, X"), 0.1) for watt in (14, 60, 66, 65)]
    assert [poll.gpus[0].util for poll in polls] == [0.0, 0.0, 0.0, None]
    assert codes(polls[-1]) == ["GPU_SENSOR_DEAD"]


@pytest.mark.parametrize(
    ("util", "power", "clock"),
    [
        ((0, 0, 0, 0), (30, 31, 30, 32), (210, 210, 210, 210)),
        ((0, 0, 0, 0), (30, 95, 96, 94), (1400, 1410, 1400, 1410)),
        ((0, 0.4, 0, 0), (12, 60, 60, 60), (210, 2400, 2400, 2400)),
        ((0, 0, 0), (12, 60, 60), (210, 2400, 2400)),
    ],
    ids=["idle", "clock stands", "sensor moves", "too few"],
)
def test_an_idle_gpu_is_no_dead_sensor(
    util: tuple[float, ...], power: tuple[float, ...], clock: tuple[float, ...]
) -> None:
    history = [
        GpuSample(0, "", "", util=u, power_w=p, sm_clock_mhz=c) for u, p, c in zip(util, power, clock, strict=True)
    ]
    assert dead_sensor(history) is None


def test_throttle_counters_are_compared_between_readings() -> None:
    made = reader()
    row = "0, 0000:01:00.0, 90, 300, X"
    counters = "    Clocks Event Reasons Counters\n        HW Thermal Slowdown : {} us\n"
    first = made.read(output(row, throttle=counters.format(8_000_000), uptime="100.0 5\n"), 0.1)
    second = made.read(output(row, throttle=counters.format(9_000_000), uptime="120.0 5\n"), 0.1)
    third = made.read(output(row, throttle=counters.format(9_000_000), uptime="140.0 5\n"), 0.1)
    assert [codes(poll) for poll in (first, second, third)] == [[], ["GPU_THROTTLED_PAST"], []]


def test_processes_on_gpus_stay_until_they_are_asked_again() -> None:
    made = reader()
    row = "0, 0000:01:00.0, 9, 80, X"
    assert "--query-compute-apps" in made.script()
    made.read(output(row, apps="GPU-z, 55, 1024, python3\n"), 0.1)
    assert "--query-compute-apps" not in made.script()
    poll = made.read(output(row), 0.1)
    assert [(p.uuid, p.pid, p.used_mib) for p in poll.processes] == [("GPU-z", 55, 1024)]
    made.read(output(row), 0.1)
    assert "--query-compute-apps" in made.script()
    assert made.read(output(row, apps="\n"), 0.1).processes == ()


def test_slow_polls_are_judged_by_the_newest() -> None:
    assert gpu.judge_polls([0.3, 0.4, 0.5]) is None
    assert gpu.judge_polls([5.0, 6.0, 0.3, 0.4]) is None
    slow = gpu.judge_polls([0.2, 2.0, 4.4, 6.2, None])
    assert slow is not None
    assert slow.code == "GPU_POLL_SLOW"
    assert "4–6 s" in slow.text
    assert "unanswered" in slow.text
    hung = gpu.judge_polls([0.2, 5.0, None, None, None])
    assert hung is not None
    assert "hangs" in hung.text


def test_a_late_answer_is_told_by_its_age() -> None:
    assert gpu.slow(0.4) is None
    late, hung = gpu.slow(5.2), gpu.slow(75.0)
    assert late is not None
    assert "5.2 s" in late.text
    assert hung is not None
    assert "state D" in hung.text
