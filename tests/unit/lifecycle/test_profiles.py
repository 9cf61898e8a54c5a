"""Launch profiles: saved from a running server, launched with a change, checked without a start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lifecycle_tools import serve
from tokpit.cli.main import run
from tokpit.config.profiles import Profile, load_profile
from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.errors import ConfigError
from tokpit.insight.prediction import kv_bytes_per_token, predicted
from tokpit.ops.lifecycle.launch import Launched
from tokpit.ops.lifecycle.profiles import overridden, plain, profile_spec, save_from
from tokpit.ops.session import Session


@pytest.fixture(autouse=True)
def config(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKPIT_CONFIG_DIR", str(home / "config"))
    return home / "config"


async def test_a_running_server_is_saved_without_its_keys_and_launched_again_with_a_change(
    session: Session, engine_dir: Path, unused_tcp_port_factory: object
) -> None:
    first, second = unused_tcp_port_factory(), unused_tcp_port_factory()  # type: ignore[operator]
    flags = ("--max-num-seqs", "8", "--api-key", "sk-very-secret", "--tensor-parallel-size", "2")
    process = await serve(engine_dir, first, *flags, HF_HOME="/data/hf", HF_TOKEN="hf-very-secret", OTHER="x")
    try:
        saved = await save_from(session, f"local:{first}", "tiny")
        assert saved.left_out == ("--api-key", "HF_TOKEN")
        text = saved.path.read_text()
        assert "very-secret" not in text
        assert text.startswith(f"# saved from local:{first} on ")
        profile = load_profile("tiny")
        assert profile.program == f"{engine_dir}/bin/python {engine_dir}/bin/vllm serve"
        assert (profile.settings.tp, profile.settings.max_running, profile.settings.port) == (2, 8, first)
        assert profile.env == {"HF_HOME": "/data/hf"}, "only what a command over this link does not have"
        with pytest.raises(ConfigError, match="exists already"):
            await save_from(session, f"local:{first}", "tiny")
    finally:
        process.kill()
        process.wait()
    spec = overridden(profile_spec("tiny", "local"), {"port": second, "max_running": 4}, (), {})
    done = await session.execute("server.launch", spec=spec, timeout_s=30.0)
    assert isinstance(done, Launched)
    try:
        assert done.state.argv[done.state.argv.index("--max-num-seqs") + 1] == "4"
        assert done.state.argv[done.state.argv.index("--tensor-parallel-size") + 1] == "2"
        assert b"HF_HOME=/data/hf\0" in Path(f"/proc/{done.state.pid}/environ").read_bytes()
    finally:
        await session.execute("server.stop", target=f"local:{second}")


def test_a_flag_that_is_given_again_replaces_the_profiles() -> None:
    spec = LaunchSpec(host="h", engine="vllm", program=(), settings=Settings(tp=2, raw=("--a", "1", "--b=2", "--c")))
    made = overridden(spec, {"tp": 1}, ("--b", "3", "-x"), {"HF_HOME": "/d"})
    assert made.settings == Settings(tp=1, raw=("--a", "1", "--c", "--b", "3", "-x"))
    assert made.env == {"HF_HOME": "/d"}


def test_no_form_of_a_secret_gets_into_a_profile() -> None:
    raw = (
        "--api-key",
        "sk-1",
        "sk-2",
        "--hf-token=hf_3",
        "--admin-api-key",
        "k4",
        "--ssl-keyfile-password",
        "p5",
        "--x",
    )
    env = {"HF_TOKEN": "t6", "VLLM_API_KEY": "k7", "CUDA_VISIBLE_DEVICES": "0"}
    made, left_out = plain(Profile(engine="vllm", settings=Settings(raw=raw), env=env))
    assert made.settings.raw == ("--x",)
    assert made.env == {"CUDA_VISIBLE_DEVICES": "0"}
    assert left_out == (
        *("--api-key", "--hf-token", "--admin-api-key", "--ssl-keyfile-password"), "HF_TOKEN", "VLLM_API_KEY",
    )  # fmt: skip


def test_the_shell_checks_a_profile_without_a_start(
    mark: str, engine_dir: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (config / "profiles").mkdir(parents=True)
    (config / "profiles" / "tiny.toml").write_text(
        f'engine = "vllm"\nprogram = "{engine_dir}"\n[settings]\nmodel = "tiny"\nmax_running = 8\n'
        '[env]\nHF_HOME = "/data/hf"\n'
    )

    def tokpit(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            run(argv=list(words))
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    code, out, err = tokpit("launch", "local", "--profile", "tiny", "--dry-run", "--port", "39410", "--", "--seed", "7")
    assert code == 0, err
    program = f"{engine_dir}/bin/python {engine_dir}/bin/vllm serve"
    assert out == f"HF_HOME=/data/hf {program} tiny --port 39410 --max-num-seqs 8 --seed 7\n", "ready to copy"
    code, out, err = tokpit("launch", "local", "--profile", "tiny", "--dry-run", "--", "--max-num-sequences", "7")
    assert code == 5
    assert "refused before the start" in err
    code, out, err = tokpit(
        "launch", "local", "--profile", "tiny", "--dry-run", "--method", "slurm", "--partition", "gpu", "--log", "/l"
    )
    assert code == 0, err
    assert "#SBATCH --partition=gpu\n" in out
    assert f"exec {program} tiny --host 0.0.0.0 --max-num-seqs 8\nEND\n" in out
    assert tokpit("launch", "local", "sglang", "--profile", "tiny", "--dry-run")[0] == 2
    assert "tiny" in tokpit("profiles")[1]
    assert 'model = "tiny"' in tokpit("profiles", "tiny")[1]
    assert json.loads(tokpit("profiles", "--json")[1])["profiles"]["tiny"]["settings"]["max_running"] == 8


QWEN = ModelFacts(
    layers=64, attention_layers=16, attention_heads=24, kv_heads=4, head_dim=256, weight_bytes=54 * 10**9, hybrid=True
)


def test_the_expected_use_of_memory_is_worked_out_from_the_models_files() -> None:
    # 2 x 16 layers x 4 heads x 256 x 2 bytes = 64 KiB a token; 0.88 x 97,887 MiB - 50.3 GiB = 33.8 GiB
    assert kv_bytes_per_token(Settings(), QWEN) == 65_536
    one = HostFacts(gpu_mem_mib=(97_887.0,))
    weights, kv = predicted(Settings(mem_fraction=0.88, context_len=131_072), QWEN, one)
    assert weights == "weights: 50.3 GiB a GPU of 95.6 GiB"
    assert "at most 554,274 tokens" in kv
    assert "4 requests of the full context of 131,072" in kv
    two = HostFacts(gpu_mem_mib=(49_140.0, 49_140.0))
    assert kv_bytes_per_token(Settings(tp=2), QWEN) == 32_768
    assert kv_bytes_per_token(Settings(tp=8, kv_dtype="fp8_e4m3"), QWEN) == 8_192, "a head is not split"
    assert "25.1 GiB a GPU of 48.0 GiB (50.3 GiB / 2 ranks)" in predicted(Settings(tp=2), QWEN, two)[0]
    assert "no room is left" in predicted(Settings(), QWEN, HostFacts(gpu_mem_mib=(49_140.0,)))[1]


def test_a_latent_cache_is_not_split_and_what_is_not_known_is_not_said() -> None:
    latent = ModelFacts(layers=61, latent_dim=576, kv_heads=128, head_dim=56, weight_bytes=10**9)
    assert kv_bytes_per_token(Settings(tp=8), latent) == 61 * 576 * 2
    assert predicted(Settings(), ModelFacts(layers=61, weight_bytes=10**9), HostFacts(gpu_mem_mib=(1e5,)))[1:] == ()
    assert predicted(Settings(), QWEN, HostFacts()) == ()
    assert predicted(Settings(), QWEN, HostFacts(gpu_mem_mib=(1e5,), platform="cpu")) == ()
    assert len(predicted(Settings(quantization="fp8"), QWEN, HostFacts(gpu_mem_mib=(1e5,)))) == 1
