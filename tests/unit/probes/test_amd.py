from __future__ import annotations

import json

import pytest

from tokpit.domain.records import GpuSample
from tokpit.probes import amd

CARD = {
    "gpu": 1,
    "usage": {"gfx_activity": {"value": 64, "unit": "%"}},
    "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 90100, "unit": "MB"}},
    "power": {"socket_power": {"value": 533, "unit": "W"}},
    "temperature": {"edge": "N/A", "hotspot": {"value": 71, "unit": "C"}},
    "clock": {"gfx_0": {"clk": {"value": 2100, "unit": "MHz"}, "max_clk": {"value": 2100, "unit": "MHz"}}},
}


@pytest.mark.parametrize("document", [[CARD], {"gpu_data": [CARD]}], ids=["list", "gpu_data"])
@pytest.mark.parametrize("banner", ["", "WARNING: User is missing the following required groups: render\n"])
def test_both_shapes_of_amd_smi_and_a_banner_before_them(document: object, banner: str) -> None:
    (gpu,), problems = amd.parse_amd_smi(banner + json.dumps(document, indent=2), {1: ("MI300X", "uu-1")})
    assert problems == ()
    assert gpu == GpuSample(
        index=1,
        uuid="uu-1",
        name="MI300X",
        util=0.64,
        mem_used_mib=90100,
        mem_total_mib=196592,
        power_w=533,
        temp_c=71,
        sm_clock_mhz=2100,
        sm_clock_max_mhz=2100,
    )


def test_values_that_are_absent_or_bare_cost_one_figure() -> None:
    card = {"gpu": 0, "usage": "N/A", "power": {"socket_power": 88}, "mem_usage": {"used_vram": "N/A"}}
    (gpu,), problems = amd.parse_amd_smi(json.dumps([card]))
    assert (gpu.util, gpu.power_w, gpu.mem_used_mib, gpu.temp_c) == (None, 88, None, None)
    assert problems == ()


def test_no_json_is_no_data_not_a_crash() -> None:
    for text in ("WARNING: No JSON data to report\n", "", "[broken\n"):
        gpus, problems = amd.parse_rocm_smi(text)
        assert gpus == ()
        assert [problem.code for problem in problems] == ["GPU_NO_DATA"]


def test_rocm_smi_names_of_several_releases() -> None:
    old = {"GPU use (%)": "12", "VRAM Total Memory (B)": str(64 << 30), "VRAM Total Used Memory (B)": str(3 << 30)}
    document = {
        "card0": old | {"Average Graphics Package Power (W)": "91.0", "Temperature (Sensor edge) (C)": "40.0"},
        "card1": old | {"Current Socket Graphics Package Power (W)": "93.0", "Card Series": "AMD Instinct MI300X"},
        "system": {"Driver version": "6.7"},
    }
    gpus, problems = amd.parse_rocm_smi(json.dumps(document))
    assert [(g.index, g.power_w, g.mem_used_mib, g.util) for g in gpus] == [
        (0, 91.0, 3072, 0.12),
        (1, 93.0, 3072, 0.12),
    ]
    assert gpus[1].name == "AMD Instinct MI300X"
    assert problems == ()


def test_the_second_die_of_a_package_has_no_power_and_no_limit() -> None:
    table = (
        "==== ROCm System Management Interface ====\n"
        "GPU  Temp   AvgPwr  SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%\n"
        "0    51.0c  118.0W  1200Mhz  1600Mhz  0%   auto  500.0W    4%   35%\n"
        "1    49.0c  N/A     1200Mhz  1600Mhz  0%   auto  0.0W      4%   33%\n"
        "==========================================\n"
    )
    gpus, problems = amd.parse_rocm_smi(table)
    assert [(g.power_w, g.power_limit_w, g.util) for g in gpus] == [(118.0, 500.0, 0.35), (None, None, 0.33)]
    assert problems == ()


def test_a_few_watts_at_full_load_are_implausible_and_not_shown() -> None:
    gpus, problems = amd.parse_rocm_smi(json.dumps({"card3": {"GPU use (%)": "99", "Average Power (W)": "1.0"}}))
    assert gpus[0].power_w is None
    assert [(p.code, p.index) for p in problems] == [("GPU_SENSOR_IMPLAUSIBLE", 3)]


def test_a_few_watts_at_rest_are_believed() -> None:
    gpus, problems = amd.parse_rocm_smi(json.dumps({"card3": {"GPU use (%)": "0", "Average Power (W)": "6.0"}}))
    assert gpus[0].power_w == 6.0
    assert problems == ()


def test_lists_in_csv_cells_and_the_better_tool_wins() -> None:
    text = "gpu,socket_power,gfx_activity,gfx_clk\n0,588,97,\"['2000', '2100']\"\n1,N/A,96,\"['2100', '2100']\"\n"
    gpus, problems = amd.parse_amd_csv(text)
    assert [(g.power_w, g.sm_clock_mhz) for g in gpus] == [(588, 2050), (None, 2100)]
    assert problems == ()
    merged, told = amd.merge(gpus, [GpuSample(0, "", "", power_w=1.0), GpuSample(1, "", "", power_w=500.0)])
    assert merged[0].power_w == 588
    assert [(p.code, p.index) for p in told] == [("GPU_SENSOR_IMPLAUSIBLE", 0)]


def test_the_reader_is_absent_only_where_both_tools_are() -> None:
    made = amd.AmdReader()
    assert made.read("@@tokpit amdstatus 127\n@@tokpit rocmstatus 127\n@@tokpit end\n", 0.1).absent
    rocm = json.dumps({"card0": {"GPU use (%)": "5"}})
    poll = made.read(f"@@tokpit amdstatus 127\n@@tokpit rocm\n{rocm}\n@@tokpit rocmstatus 0\n@@tokpit end\n", 0.1)
    assert [gpu.util for gpu in poll.gpus] == [0.05]


def test_memory_by_process() -> None:
    info = {"name": "python3", "pid": 321, "memory_usage": {"vram_mem": {"value": 2147483648, "unit": "B"}}}
    text = json.dumps([{"gpu": 0, "process_list": [{"process_info": info}, {"process_info": "No running processes"}]}])
    (process,) = amd.parse_processes(text, {0: "uu"})
    assert (process.uuid, process.pid, process.used_mib) == ("uu", 321, 2048.0)


def test_the_concise_table_of_newer_releases() -> None:
    text = (
        "============================ ROCm System Management Interface ============================\n"
        "====================================== Concise Info ======================================\n"
        "Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    Fan  Perf  PwrCap"
        "  VRAM%  GPU%  \n"
        "              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)  \n"
        "==========================================================================================\n"
        "0       2     0x74a1,   28851  61.0°C      588.0W    NPS1, SPX, 0        2101Mhz  900Mhz  0%   auto  750.0W"
        "  92%    97%    \n"
        "1       3     0x74a1,   51499  43.0°C      N/A       NPS1, SPX, 0        131Mhz  900Mhz  0%   auto  0.0W"
        "  0%     0%    \n"
        "================================== End of ROCm SMI Log ===================================\n"
    )
    gpus, problems = amd.parse_rocm_smi(text)
    assert problems == ()
    assert [(g.index, g.util, g.power_w, g.power_limit_w, g.temp_c, g.sm_clock_mhz) for g in gpus] == [
        (0, 0.97, 588.0, 750.0, 61.0, 2101.0),
        (1, 0.0, None, None, 43.0, 131.0),
    ]


def test_a_warning_before_the_document_is_no_part_of_it() -> None:
    text = (
        "WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status\n\n"
        '{"card0": {"GPU use (%)": "0", "VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "N/A"}}'
    )
    ((gpu,), problems) = amd.parse_rocm_smi(text)
    assert (gpu.util, gpu.mem_total_mib, gpu.mem_used_mib, problems) == (0.0, 196592.0, None, ())
