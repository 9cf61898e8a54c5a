"""What a host can run and whether a launch would work there: real folders, real commands, texts of other hosts."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from lifecycle_tools import make_engine
from tokpit.config.inventory import Inventory
from tokpit.domain.hostspec import HostSpec
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.errors import LaunchError
from tokpit.ops.diagnose.searched import searched
from tokpit.ops.host.doctor import examine
from tokpit.ops.host.environments import cache_path, find_environments, holding
from tokpit.ops.lifecycle.launch import assess
from tokpit.ops.session import Session
from tokpit.probes.checkup import parse_checkup
from tokpit.probes.environments import Found, environments_script, parse_environments
from tokpit.probes.survival import Survival, parse_survival, risks
from tokpit.transport.local import LocalHost


async def look(home: Path) -> Found:
    host = LocalHost(HostSpec(name="local", local=True))
    try:
        answer = await host.run(environments_script(searched(), roots=[str(home)], models=[str(home / "models")]))
    finally:
        await host.close()
    return parse_environments(answer.out, searched())


def install(prefix: Path, name: str, version: str, **extra: str) -> None:
    site = next(prefix.glob("lib/python3*/site-packages"))
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nVersion: 9\n")
    for file, text in extra.items():
        (info / f"{file}.json").write_text(text)


async def test_environments_are_found_with_versions_and_without_running_them(mark: str, home: Path) -> None:
    venv = make_engine(home / "envs" / "serving", version="0.30.1")
    (venv / "bin" / "python").unlink()  # nothing may be started to learn a version
    install(venv, "torch", "2.13.0")
    tool = make_engine(home / ".local/share/uv/tools/vllm-nightly", version="0.31.0.dev7+g1a2b3c4")
    where = {"url": "file:///src/vllm", "dir_info": {"editable": True}}
    (next(tool.glob("lib/*/site-packages/vllm-*")) / "direct_url.json").write_text(json.dumps(where))
    conda = home / "miniconda3" / "envs" / "sgl"
    (conda / "conda-meta").mkdir(parents=True)
    (conda / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    install(conda, "sglang", "0.5.11")
    make_engine(home / "plain")
    for path in (home / "plain").rglob("vllm-*"):
        path.rename(path.with_name("requests-2.0.dist-info"))
    found = await look(home)
    assert {e.prefix: (e.kind, e.engines) for e in found.environments} == {
        str(venv): ("venv", {"vllm": "0.30.1"}),
        str(tool): ("uv-tool", {"vllm": "0.31.0.dev7+g1a2b3c4"}),
        str(conda): ("conda", {"sglang": "0.5.11"}),
    }
    assert found.others == 1
    assert not found.cut
    first, second = holding(found, "vllm")
    assert first.prefix == str(venv), "a released build before a development build"
    package = second.package("vllm")
    assert package is not None
    assert (package.development, package.source) == (True, "/src/vllm (editable)")
    torch = first.package("torch")
    assert torch is not None
    assert torch.version == "2.13.0"
    assert torch.installed_at is not None


async def test_models_of_the_cache_and_of_folders_are_found_with_their_sizes(mark: str, home: Path) -> None:
    hub = home / ".cache/huggingface/hub/models--org--tiny-7b"
    snapshot = hub / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (hub / "blobs").mkdir()
    (hub / "blobs" / "deadbeef.incomplete").write_text("")
    (snapshot / "model.safetensors").write_bytes(b"x" * 3000)
    (snapshot / "tokenizer.json").write_bytes(b"x" * 999)
    folder = home / "models" / "big"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model-1.safetensors").write_bytes(b"x" * 500)
    (home / "models" / "small.gguf").write_bytes(b"x" * 70)
    (home / "models" / "empty").mkdir()
    (home / "models" / "empty" / "config.json").write_text("{}")
    found = await look(home)
    assert {(m.name, m.kind, m.size_bytes, m.unfinished) for m in found.models} == {
        ("org/tiny-7b", "hub", 3000, True),
        ("big", "folder", 500, False),
        ("small.gguf", "gguf", 70, False),
    }


async def test_a_look_is_kept_per_host_and_made_again_when_asked(session: Session, home: Path) -> None:
    make_engine(home / "one")
    found = await find_environments(session, "local")
    assert str(home / "one") in {e.prefix for e in found.environments}
    assert cache_path("local").exists()
    make_engine(home / "two")
    assert await find_environments(session, "local") == found
    again = await find_environments(session, "local", fresh=True)
    assert str(home / "two") in {e.prefix for e in again.environments}


async def test_doctor_says_how_each_thing_is_and_what_prevents_a_launch(
    session: Session, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(home / "serving")
    rc = home / ".bash_profile"
    rc.write_text("echo welcome\nexport HF_HOME=/data/hf\nexport CUDA_VISIBLE_DEVICES=2,3\n")
    monkeypatch.setenv("SHELL", "/bin/bash")
    report = await examine(session, "local")
    by_name = {check.name: check for check in report.checks}
    assert {"link", "clock", "shell", "environment", "gpu", "memory", "disk", "ulimit", "survival", "ports"} <= set(
        by_name
    )
    assert any(str(engine) in check.says for check in report.checks if check.name == "engine")
    assert by_name["environment"].status == "warn"
    assert "HF_HOME not set here, /data/hf there" in by_name["environment"].says
    assert "CUDA_VISIBLE_DEVICES" in by_name["environment"].says
    assert not report.blocked
    assert all(check.mend for check in report.checks if check.status == "fail")


async def test_a_launch_of_an_engine_that_is_not_on_the_path_names_where_it_is(session: Session, home: Path) -> None:
    conda = home / "miniconda3" / "envs" / "sgl"
    (conda / "conda-meta").mkdir(parents=True)
    (conda / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    install(conda, "sglang", "0.5.11")
    spec = LaunchSpec(host="local", engine="sglang", program=("/no/such/sglang",), settings=Settings(model="m"))
    with pytest.raises(LaunchError) as caught:
        await session.execute("server.launch", spec=spec)
    assert f"--env-dir {conda}" in caught.value.hint
    assert "0.5.11" in caught.value.hint


async def test_what_the_login_has_in_its_environment_is_checked_before_a_launch(
    session: Session, engine_dir: Path, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(model="tiny", port=unused_tcp_port)
    spec = LaunchSpec(host="local", engine="vllm", program=(str(engine_dir),), settings=settings)
    monkeypatch.setenv("CUDA_HOME", ":/usr/local/cuda-12.8")
    monkeypatch.setenv("HF_HOME", "/data/hf/hub")
    made = await assess(session, spec)
    assert any("CUDA_HOME=':/usr/local/cuda-12.8' is malformed" in said for said in made.errors)
    assert any("/data/hf/hub/hub" in said for said in made.warnings)
    given = await assess(session, msgspec.structs.replace(spec, env={"CUDA_HOME": "/opt/cuda", "HF_HOME": "/data/hf"}))
    assert not [said for said in (*given.errors, *given.warnings) if "_HOME" in said]


async def test_a_host_that_cannot_be_reached_is_one_failed_line(tmp_path: Path, unused_tcp_port: int) -> None:
    spec = HostSpec(name="gone", address="127.0.0.1", port=unused_tcp_port)
    async with Session(Inventory(hosts={"gone": spec}), history_path=tmp_path / "h.sqlite") as session:
        report = await examine(session, "gone")
    assert [(check.name, check.status) for check in report.checks] == [("link", "fail")]
    assert report.blocked


def facts(**fields: object) -> Survival:
    usual: dict[str, object] = {
        "user": "eve",
        "uid": 1007,
        "tools": frozenset({"setsid", "tmux", "systemd-run"}),
        "systemd": True,
    }
    return Survival(**(usual | fields))  # type: ignore[arg-type]  # fields of Survival


def test_logins_that_take_their_processes_along_forbid_setsid_and_tmux_and_systemd_needs_linger() -> None:
    host = parse_survival(
        "@@tokpit who\neve\n1007\n@@tokpit cgroup\n0::/user.slice/user-1007.slice/session-52.scope\n"
        "@@tokpit linger\nLinger=no\n@@tokpit logind\n#KillUserProcesses=no\nKillUserProcesses=yes\n"
        "@@tokpit tools\nsystemd-run\ntmux\nsystemd\n@@tokpit disk\n/dev/sda1 100 20 80000000 20% /\n@@tokpit end\n"
    )
    assert (host.linger, host.kill_user_processes, host.disk_free_bytes) == (False, True, 80000000 * 1024)
    for method in ("setsid", "tmux"):
        (risk,) = risks(host, method)
        assert (risk.code, risk.fatal) == ("CGROUP_KILL_RISK", True)
        assert "session-52.scope" in risk.sentence
    (risk,) = risks(host, "systemd")
    assert "enable-linger eve" in risk.mend
    assert risks(facts(kill_user_processes=True, linger=True), "systemd") == ()
    assert risks(facts(kill_user_processes=True, user="root", uid=0), "setsid") == (), "root is excluded by default"


def test_a_connection_that_is_a_unit_of_its_own_ends_what_it_started() -> None:
    cgroup = "0::/system.slice/system-sshd.slice/sshd@14-10.0.0.2:22-10.0.0.9:5122.service"
    assert [r.code for r in risks(facts(cgroup=cgroup), "setsid")] == ["CGROUP_KILL_RISK"]
    assert risks(facts(cgroup="0::/system.slice/ssh.service"), "setsid") == ()


def test_full_disks_small_shared_memory_and_limits_are_told_before_the_start() -> None:
    codes = {r.code: r.fatal for r in risks(facts(disk_free_bytes=10 * 2**20, shm_free_bytes=60 * 2**20), "setsid")}
    assert codes == {"DISK_FULL": True, "SHM_SMALL": False}
    assert risks(facts(shm_free_bytes=60 * 2**20, tools=frozenset({"docker"})), "docker") == (), "--ipc=host"
    (risk,) = risks(facts(memory_limit_bytes=48 * 2**30), "setsid")
    assert "48.0 GiB" in risk.sentence
    assert [r.code for r in risks(facts(systemd=False), "systemd")] == ["NO_SYSTEMD"]
    assert [r.code for r in risks(facts(tools=frozenset({"setsid"})), "docker")] == ["NO_TOOL"]


def test_no_driver_and_a_mismatch_are_told_apart_from_no_gpu() -> None:
    text = "@@tokpit driver\nFailed to initialize NVML: Driver/library version mismatch\n@@tokpit end\n"
    assert "mismatch" in parse_checkup(text).gpu_trouble
    assert parse_checkup("@@tokpit driver\nsh: 1: nvidia-smi: not found\n@@tokpit end\n").gpu_trouble == ""
    good = parse_checkup("@@tokpit driver\n575.57.08, NVIDIA RTX A6000, 49140 MiB\n@@tokpit end\n")
    assert (good.driver, good.gpus) == ("575.57.08", ("NVIDIA RTX A6000, 49140 MiB",))
