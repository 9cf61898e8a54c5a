"""What is read on a host and of a model before a start."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

from tokpit.probes.model import from_config, model_script, parse_model
from tokpit.probes.preflight import parse_preflight, preflight_script


def sh(script: str, **env: str) -> str:
    full = {**os.environ, **env}
    return subprocess.run(["/bin/sh", "-c", script], env=full, capture_output=True, text=True, check=True).stdout


def test_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        facts = parse_preflight(sh(preflight_script()))
        assert server.getsockname()[1] in facts.ports_in_use
    assert facts.mem_total_bytes is not None
    assert facts.mem_available_bytes is not None
    assert 0 < facts.mem_available_bytes <= facts.mem_total_bytes
    assert facts.disk_free_bytes


def test_gpus_and_limits_are_read_and_missing_ones_stay_unknown() -> None:
    facts = parse_preflight(
        "motd\n@mem\nMemTotal: 1000 kB\nMemAvailable: 600 kB\n@cgroup\nmax\n9223372036854771712\n500000\n@shm\n"
        "tmpfs 64 10 54 16% /dev/shm\n@tcp\n  0: 0100007F:7530 00000000:0000 0A 0 0 0 0 0 77\n"
        "  1: 0100007F:1F90 0100007F:0050 01 0 0\n@gpu\nNVIDIA L4, 23034, 22000\nOdd, Name, 100, [N/A]\n@gpuok\n"
    )
    assert (facts.mem_total_bytes, facts.mem_available_bytes) == (1_024_000, 614_400)
    assert facts.cgroup_limit_bytes == 500_000
    assert facts.shm_free_bytes == 54 * 1024
    assert facts.ports_in_use == {30000}
    assert facts.gpu_count == 2
    assert facts.gpu_names == ("NVIDIA L4", "Odd, Name")
    assert facts.gpu_free_mib == (22000.0,)
    assert parse_preflight("").gpu_count is None
    assert parse_preflight("@gpu\nnone\n").gpu_count == 0


def test_a_model_folder(tmp_path: Path) -> None:
    config = {"architectures": ["Qwen3NextForCausalLM"], "layer_types": ["linear_attention", "full_attention"]}
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2, "hidden_size": 8}))
    (tmp_path / "a.safetensors").write_bytes(b"x" * 700)
    (tmp_path / "b.safetensors").write_bytes(b"x" * 300)
    facts, missing = parse_model(sh(model_script(str(tmp_path))))
    assert not missing
    assert facts.hybrid
    assert facts.attention_layers == 1
    assert facts.weight_bytes == 1000
    assert facts.architecture == "Qwen3NextForCausalLM"


def test_a_name_in_the_hugging_face_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--org--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"num_attention_heads": 16, "hidden_size": 2048}')
    facts, missing = parse_model(sh(model_script("org/name"), HF_HOME=str(tmp_path), HF_HUB_CACHE=""))
    assert not missing
    assert (facts.attention_heads, facts.head_dim, facts.hybrid) == (16, 128, False)


def test_a_path_that_does_not_exist_is_missing_and_a_hub_name_is_not() -> None:
    assert parse_model(sh(model_script("/no/such/model's folder")))[1]
    assert not parse_model(sh(model_script("no/such-name")))[1]


def test_text_settings_of_a_multimodal_model_are_looked_into() -> None:
    facts = from_config({"architectures": ["X"], "text_config": {"num_hidden_layers": 64, "linear_num_key_heads": 16}})
    assert (facts.layers, facts.hybrid) == (64, True)
    assert from_config({}).hybrid is None
