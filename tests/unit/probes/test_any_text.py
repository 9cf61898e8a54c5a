from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from tokpit.probes import amd, memory, nvidia, nvidia_text, processes, sections
from tokpit.probes.nvidia_reader import NvidiaReader

WORDS = st.sampled_from(
    [
        "0", "1, 2", ", ", "[N/A]", "[Unknown Error]", "NVIDIA GB10", "GPU 0:", "Xid (PCI:", "fallen off the bus",
        "Field \"x\" is not a valid field to query.", "\n", "\r\n", "@@tokpit gpus\n", "@@tokpit status 0\n",
        "@@tokpit processes\n", "e\n", "p 1 2 3\n", "a 1 ff\n", "{", "[", "\"gpu\":", "card0", "GPU%", "0x",
        "MemTotal: ", "kB", "Unable to determine the device handle for GPU", "\x00", "\ufffd",
    ]
)  # fmt: skip
TEXT = st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=30).map("".join))


@settings(deadline=None, max_examples=150)
@given(TEXT)
def test_no_output_of_a_tool_breaks_a_reader(text: str) -> None:
    for fields in (None, nvidia.FIELDS, ("index", "name"), ()):
        answer = nvidia.parse(text, fields, status=1)
        assert all(gpu.util is None or 0 <= gpu.util <= 1 for gpu in answer.gpus)
    nvidia.parse_apps(text)
    nvidia_text.parse_list(text)
    nvidia_text.parse_throttle_counters(text)
    nvidia_text.xid_problems(nvidia_text.parse_kernel_log(text), {})
    for parse in (amd.parse_amd_smi, amd.parse_rocm_smi, amd.parse_amd_csv):
        gpus, problems = parse(text)
        assert gpus or problems or parse is amd.parse_amd_smi
    amd.parse_processes(text, {})
    memory.parse_meminfo(text)
    sections.sections(text)
    NvidiaReader().read(text, 0.1)
    amd.AmdReader().read(text, 0.1)


@settings(deadline=None, max_examples=150)
@given(TEXT)
def test_a_broken_table_or_reading_raises_valueerror_and_nothing_else(text: str) -> None:
    for parse in (processes.parse, memory.parse):
        with contextlib.suppress(ValueError):
            parse(text)
