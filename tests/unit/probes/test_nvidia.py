from __future__ import annotations

import pytest

from tokpit.domain.records import GpuSample
from tokpit.probes import nvidia
from tokpit.probes.memory import MemInfo, parse_meminfo
from tokpit.probes.nvidia import Answer, parse

MEMINFO = "MemTotal:       130023424 kB\nMemAvailable:    26214400 kB\nShmem: 10 kB\n"
BROKEN_CELLS = "2, NVIDIA L40S, [n/a], [Insufficient Permissions], [GPU requires reset]"


def codes(answer: Answer) -> list[str]:
    return [problem.code for problem in answer.problems]


def full_row(**cells: str) -> str:
    usual = {
        "index": "0",
        "uuid": "GPU-11",
        "pci.bus_id": "00000000:5F:00.0",
        "mig.mode.current": "Disabled",
        "utilization.gpu": "97",
        "memory.used": "70211",
        "memory.total": "81559",
        "power.draw": "652.10",
        "enforced.power.limit": "700.00",
        "temperature.gpu": "64",
        "clocks.current.sm": "1755",
        "clocks.max.sm": "1980",
        "clocks_event_reasons.active": "0x0000000000000000",
        "name": "NVIDIA H100 80GB HBM3",
    }
    return ", ".join((usual | cells)[field] for field in nvidia.FIELDS)


def test_a_healthy_row_fills_every_figure() -> None:
    answer = parse(full_row(), nvidia.FIELDS, status=0)
    assert answer.problems == ()
    assert answer.addresses == {0: "0000:5f:00.0"}
    assert answer.gpus == (
        GpuSample(
            index=0,
            uuid="GPU-11",
            name="NVIDIA H100 80GB HBM3",
            util=0.97,
            mem_used_mib=70211,
            mem_total_mib=81559,
            power_w=652.1,
            power_limit_w=700,
            temp_c=64,
            sm_clock_mhz=1755,
            sm_clock_max_mhz=1980,
        ),
    )


def test_a_name_with_commas_does_not_shift_the_cells() -> None:
    (gpu,) = parse(full_row(name="NVIDIA RTX, 6000, Ada"), nvidia.FIELDS).gpus
    assert (gpu.name, gpu.util, gpu.power_w) == ("NVIDIA RTX, 6000, Ada", 0.97, 652.1)


def test_carriage_returns_of_a_terminal_are_no_part_of_the_values() -> None:
    answer = parse("0, 42000 MiB\r\n1, 41990 MiB\r\n", ["index", "memory.used"])
    assert [gpu.mem_used_mib for gpu in answer.gpus] == [42000, 41990]


# Unified memory


def test_unified_memory_is_the_hosts_and_is_told_as_such() -> None:
    csv = "index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n0, NVIDIA GB10, [N/A], [N/A], 7 %\n"
    answer = parse(csv, memory=parse_meminfo(MEMINFO))
    (gpu,) = answer.gpus
    assert gpu.unified
    assert gpu.mem_used_mib == pytest.approx((130023424 - 26214400) / 1024)
    assert codes(answer) == ["GPU_UNIFIED"]
    assert "99.0 of 124.0 GiB" in answer.problems[0].text
    assert answer.problems[0].info


def test_a_driver_that_tells_unified_memory_is_not_believed() -> None:
    csv = "index, name, memory.used [MiB], memory.total [MiB]\n0, NVIDIA GB10, 40000 MiB, 119000 MiB\n"
    answer = parse(csv, memory=parse_meminfo(MEMINFO))
    assert answer.gpus[0].mem_used_mib == pytest.approx(101376.0)
    assert "39.1 GiB" in answer.problems[0].text


def test_unified_memory_without_the_hosts_figures_stays_unknown() -> None:
    (gpu,) = parse(
        "0, [N/A], [N/A], NVIDIA Thor", ["index", "memory.used", "memory.total", "name"], memory=MemInfo()
    ).gpus
    assert gpu.unified
    assert (gpu.mem_used_mib, gpu.mem_total_mib) == (None, None)


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA GH200 480GB", "Tesla V100-SXM2-16GB"])
def test_memory_of_a_card_that_does_not_tell_it_is_unknown_never_the_hosts(name: str) -> None:
    answer = parse(
        f"index, name, memory.used [MiB], memory.total [MiB]\n0, {name}, [N/A], [N/A]\n", memory=parse_meminfo(MEMINFO)
    )
    assert codes(answer) == ["GPU_MEM_UNKNOWN"]
    assert (answer.gpus[0].mem_used_mib, answer.gpus[0].unified) == (None, False)


# MIG


def test_mig_hides_utilisation_and_keeps_memory() -> None:
    csv = (
        "index, name, mig.mode.current, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n"
        "0, NVIDIA A100-SXM4-80GB, Enabled, 0 %, 20100 MiB, 81920 MiB\n"
        "1, NVIDIA A100-SXM4-80GB, Disabled, 0 %, 3 MiB, 81920 MiB\n"
    )
    answer = parse(csv, mig_instances={0: 3, 1: 0})
    assert [(gpu.mig, gpu.util, gpu.mem_used_mib) for gpu in answer.gpus] == [(True, None, 20100), (False, 0.0, 3)]
    assert [(p.code, p.index) for p in answer.problems] == [("GPU_MIG", 0)]
    assert "3 instances" in answer.problems[0].text


# Cells


def test_one_bad_cell_costs_one_figure_not_the_row_or_the_page() -> None:
    csv = (
        "index, name, fan.speed [%], power.draw [W], utilization.gpu [%]\n"
        "0, NVIDIA L40S, [N/A], 88.50 W, 31 %\n"
        "1, NVIDIA L40S, [Not Supported], [Unknown Error], 98 %\n" + BROKEN_CELLS + "\n"
    )
    answer = parse(csv)
    assert [(gpu.power_w, gpu.util) for gpu in answer.gpus] == [(88.5, 0.31), (None, 0.98), (None, None)]
    assert [(p.code, p.index) for p in answer.problems] == [
        ("GPU_TRANSIENT", 1),
        ("GPU_NO_PERMISSION", 2),
        ("GPU_REQUIRES_RESET", 2),
    ]
    assert "Unknown Error" in answer.problems[0].text


@pytest.mark.parametrize("cell", ["[N/A]", "N/A", "[n/a]", "[Not Supported]", ""])
def test_cells_that_say_nothing_raise_no_problem(cell: str) -> None:
    answer = parse(f"0, {cell}, 11 %", ["index", "power.draw", "utilization.gpu"])
    assert answer.problems == ()
    assert answer.gpus[0].power_w is None


@pytest.mark.parametrize("cell", ["ERR!", "[Unknown Error]", "Unknown Error"])
def test_an_error_in_a_cell_is_told_with_its_words(cell: str) -> None:
    answer = parse(f"0, {cell}, 11 %", ["index", "power.draw", "utilization.gpu"])
    assert codes(answer) == ["GPU_TRANSIENT"]
    assert cell.strip("[]") in answer.problems[0].text


@pytest.mark.parametrize("percent", ["101", "-3", "nan", "inf"])
def test_utilisation_outside_its_range_is_unknown(percent: str) -> None:
    assert parse(f"0, {percent}", ["index", "utilization.gpu"]).gpus[0].util is None


# Throttling


def test_a_renamed_header_is_read_by_position() -> None:
    asked = ["clocks_throttle_reasons.sw_thermal_slowdown", "clocks_throttle_reasons.sw_power_cap"]
    answer = parse(
        "clocks_event_reasons.sw_thermal_slowdown, clocks_event_reasons.sw_power_cap\nNot Active, Active\n", asked
    )
    assert answer.gpus[0].throttle == ("sw-power-cap",)


@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        ("0x0000000000000001", ()),
        ("0x0000000000000004", ("sw-power-cap",)),
        ("0x00000000000000E8", ("hw-slowdown", "sw-thermal", "hw-thermal", "power-brake")),
        ("0x0000000000000102", ()),
        ("[N/A]", ()),
        ("0xZZ", ()),
    ],
)
def test_slowdown_reasons_of_the_bit_mask(mask: str, reasons: tuple[str, ...]) -> None:
    (gpu,) = parse(full_row(**{"clocks_event_reasons.active": mask}), nvidia.FIELDS).gpus
    assert gpu.throttle == reasons


def test_a_gpu_at_its_power_limit_is_information_not_an_alarm() -> None:
    csv = (
        "index, pstate, utilization.gpu [%], power.draw [W], enforced.power.limit [W], "
        "clocks_event_reasons.sw_power_cap\n"
        "0, P2, 71 %, 249.60 W, 250.00 W, Active\n1, P2, 71 %, 249.60 W, 250.00 W, Not Active\n"
    )
    answer = parse(csv)
    assert [(p.code, p.index, p.info) for p in answer.problems] == [("GPU_POWER_CAPPED", 0, True)]
    assert "249.6 of 250 W" in answer.problems[0].text


# The whole query


def test_an_unknown_field_is_named_so_that_it_can_be_dropped() -> None:
    answer = parse('Field "clocks_event_reasons.active" is not a valid field to query.\n\n', nvidia.FIELDS, status=2)
    assert answer.bad_field == "clocks_event_reasons.active"
    assert codes(answer) == ["GPU_QUERY_FIELD"]


@pytest.mark.parametrize(
    ("line", "index", "address"),
    [
        ("Unable to determine the device handle for GPU0: 0000:1A:00.0: Unknown Error", 0, "0000:1a:00.0"),
        ("Unable to determine the device handle for GPU 0000:1A:00.0: Unknown Error", None, "0000:1a:00.0"),
        ("Unable to determine the device handle for GPU0000:1A:00.0: Unknown Error", None, "0000:1a:00.0"),
        (
            "Unable to determine the device handle for gpu 0000:1A:00.0: GPU is lost.  "
            "Reboot the system to recover this GPU",
            None,
            "0000:1a:00.0",
        ),
        ("Unable to determine the device handle for GPU12: 00000000:1A:00.0: Unknown Error", 12, "0000:1a:00.0"),
    ],
)
def test_a_lost_gpu_between_the_rows_is_told_and_the_others_stay(line: str, index: int | None, address: str) -> None:
    answer = parse(f"1, 40 %\n{line}\n3, 55 %\n", ["index", "utilization.gpu"], status=15)
    assert [(gpu.index, gpu.util) for gpu in answer.gpus] == [(1, 0.4), (3, 0.55)]
    assert [(p.code, p.index) for p in answer.problems] == [("GPU_LOST", index)]
    assert address in answer.problems[0].text


def test_a_row_of_nothing_but_errors_is_a_lost_gpu() -> None:
    error = "[Unknown Error]"
    answer = parse(
        f"2, GPU-x, {error}, {error}, {error}", ["index", "uuid", "utilization.gpu", "power.draw", "memory.used"]
    )
    assert [(p.code, p.index) for p in answer.problems] == [("GPU_LOST", 2)]


def test_driver_and_library_that_differ_are_told_with_both_versions() -> None:
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"
    module = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Sun Sep  7\nGCC version: 12\n"
    answer = parse(text, nvidia.FIELDS, status=18, kernel_module=module)
    assert codes(answer) == ["DRIVER_MISMATCH"]
    assert "580.82.07" in answer.problems[0].text
    assert "580.95" in answer.problems[0].text
    assert not answer.absent


@pytest.mark.parametrize(
    ("text", "status", "code", "absent"),
    [
        ("sh: 1: nvidia-smi: not found\n", 127, "NO_NVIDIA", True),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.\n",
            9,
            "NO_DRIVER",
            False,
        ),
        ("No devices were found\n", 6, "GPU_NONE", False),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", 12, "NO_DRIVER", False),
        ("Segmentation fault\n", 139, "GPU_QUERY_FAILED", False),
    ],
)
def test_answers_about_the_driver_as_a_whole(text: str, status: int, code: str, absent: bool) -> None:
    answer = parse(text, nvidia.FIELDS, status=status)
    assert (codes(answer), answer.absent, answer.gpus) == ([code], absent, ())


def test_terminal_escapes_in_a_name_do_not_reach_the_screen() -> None:
    (gpu,) = parse("0, \x1b[31mNVIDIA L4\x1b[0m", ["index", "name"]).gpus
    assert gpu.name == "NVIDIA L4"


def test_memory_by_process_is_joined_by_uuid() -> None:
    text = "GPU-b, 4711, 60210, python3\nGPU-a, 4712, [N/A], VLLM::Worker_TP1, with comma\nNo running processes found\n"
    apps = nvidia.parse_apps(text)
    assert [(app.uuid, app.pid, app.used_mib) for app in apps] == [("GPU-b", 4711, 60210), ("GPU-a", 4712, None)]
    assert apps[1].name == "VLLM::Worker_TP1, with comma"


@pytest.mark.parametrize("quote", ['"', "'"])
def test_an_unknown_field_in_either_quotes_is_named(quote: str) -> None:
    said = f"Field {quote}temperature.gpu.tlimit{quote} is not a valid field to query.\n\n"
    assert parse(said, ["index", "temperature.gpu.tlimit"], status=2).bad_field == "temperature.gpu.tlimit"


def test_what_a_login_prints_around_the_rows_is_no_gpu() -> None:
    fields = ["index", "name", "utilization.gpu", "memory.used", "memory.total"]
    rows = "0, NVIDIA H100, 5 %, 10 MiB, 100 MiB\n1, NVIDIA H100, [N/A], Not Supported, 100 MiB\n"
    said = f"Welcome to gpu1\n*** maintenance tonight ***\n{rows}WARNING: infoROM is corrupted at gpu 0000:5E:00.0\n"
    answer = parse(said, fields, status=0)
    assert [(g.index, g.util, g.mem_used_mib) for g in answer.gpus] == [(0, 0.05, 10), (1, None, None)]
