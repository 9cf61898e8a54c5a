"""Earlier deployments: a host on which a server was once faster, and every place that may remember it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lifecycle_tools import make_engine
from tokpit.cli.history import as_document
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.engines.flagkit.echo import read_echo
from tokpit.engines.flagkit.shelltext import started_in
from tokpit.errors import UsageError
from tokpit.ops.diagnose.run import Sources, diagnose_all
from tokpit.ops.diagnose.searched import searched
from tokpit.ops.host.deployments import Past, earlier_spec, explanations, key_of, look_back, spec_of
from tokpit.ops.host.remembered import Deployment, deployments
from tokpit.ops.lifecycle.launch import plan
from tokpit.ops.lifecycle.profiles import overridden
from tokpit.ops.session import Session
from tokpit.probes.deployments import Piece, deployments_script, parse_pieces
from tokpit.probes.environments import Found
from tokpit.probes.units import parse_unit_files

UNIT = """\
[Unit]
Description=Qwen on SGLang
[Service]
Environment="CUDA_VISIBLE_DEVICES=0,1"
ExecStart={python} -m sglang.launch_server --model-path /models/Qwen3.6-27B \\
    --tp 2 --port 30000 --speculative-algorithm NEXTN --speculative-num-steps 3 \\
    --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --mem-fraction-static 0.88 \\
    --api-key sk-12345678
Restart=on-failure
[Install]
WantedBy=default.target
"""
LOG = (
    "[2026-04-02 07:15:09] server_args=ServerArgs(model_path='/models/Qwen3.6-27B-AWQ', tp_size=2, port=30000, "
    "quantization='awq_marlin', speculative_algorithm=None, context_length=65536, mem_fraction_static=0.871, "
    "api_key='sk-log-secret', random_seed=42, kind=<Kind.A: 'a'>)\n[2026-04-02 07:15:10] Load weight begin.\n"
)


@pytest.fixture
def remembering_home(home: Path, mark: str, unused_tcp_port: int) -> Iterator[Path]:
    """A home with a unit file, an old log, two inspection commands, a vLLM build, and a running SGLang."""
    sgl = make_engine(home / "sgl", version="0.0.0")
    site = next(sgl.glob("lib/python3*/site-packages"))
    next(site.glob("vllm-*")).rename(site / "sglang-0.5.11.dist-info")
    (site / "sglang-0.5.11.dist-info" / "METADATA").write_text("Name: sglang\nVersion: 0.5.11\n")
    (site / "sglang").mkdir()
    (site / "sglang" / "__init__.py").write_text("")
    (site / "sglang" / "launch_server.py").write_text("import time\ntime.sleep(600)\n")
    make_engine(home / "vllm-src" / "venv", version="0.31.0.dev12+gabc1234")
    units = home / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    (units / "sglang-qwen.service").write_text(UNIT.format(python=sgl / "bin" / "python"))
    (home / "logs").mkdir()
    (home / "logs" / "qwen-april.log").write_text(LOG)
    (home / ".bash_history").write_text("cd\nnvidia-smi\nls -la\nsystemctl --user status sglang-qwen\nexit\n")
    flags = "--tp 2 --speculative-algorithm NEXTN --speculative-num-steps 1 --context-length 19000"
    flags += f" --port {unused_tcp_port}"
    command = f"{sgl}/bin/python -m sglang.launch_server --model-path /models/Qwen3.6-27B {flags}"
    process = subprocess.Popen(
        command.split(), start_new_session=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": "0,1"}
    )
    yield home
    process.kill()
    process.wait()


async def test_the_unit_and_the_log_tell_what_ran_before_and_what_changed_since(
    session: Session, remembering_home: Path, unused_tcp_port: int
) -> None:
    past = await look_back(session, "local", compare=True)
    here = str(remembering_home)
    mine = [one for one in past.deployments if one.where.startswith(here)]
    assert [(one.source, one.engine) for one in mine] == [("log", "sglang"), ("unit", "sglang")]
    log, unit = mine
    assert (unit.settings.tp, unit.settings.spec_steps, unit.settings.mem_fraction) == (2, 3, 0.88)
    assert unit.version_now == "0.5.11"
    assert (log.settings.quantization, log.settings.model) == ("awq_marlin", "/models/Qwen3.6-27B-AWQ")
    assert any(".bash_history" in remark and "none starts a server" in remark for remark in past.remarks)
    assert any(here in place.prefix and "vllm" in place.engines for place in past.found.environments)

    by_source = {
        pair.deployment.source: [change.text for change in pair.changes]
        for pair in past.compared
        if pair.deployment.where.startswith(here) and pair.server.port == unused_tcp_port
    }
    assert by_source["unit"][0] == "spec_steps: 3 -> 1", "what decides the speed comes first"
    assert "mem_fraction: 0.88 -> not given" in by_source["unit"]
    assert not any(text.startswith(("tp:", "CUDA_VISIBLE")) for text in by_source["unit"])
    assert by_source["log"][:2] == [
        "model: /models/Qwen3.6-27B-AWQ -> /models/Qwen3.6-27B",
        "quantization: awq_marlin -> not given",
    ]
    assert "version: not known, its environment was changed since -> 0.5.11" in by_source["log"]
    assert not any("random_seed" in text or "mem_fraction" in text for text in by_source["log"]), "the engine's own"
    why = explanations(
        [pair for pair in past.compared if pair.server.port == unused_tcp_port and pair.deployment in mine]
    )
    assert [text.partition(" (")[0] for text in why][:4] == [
        "model: /models/Qwen3.6-27B-AWQ -> /models/Qwen3.6-27B",
        "quantization: awq_marlin -> not given",
        "spec_method: not given -> mtp",
        "spec_steps: 3 -> 1",
    ]

    document = json.dumps(as_document(past), default=str)
    assert "sk-12345678" not in document
    assert "sk-log-secret" not in document
    assert "spec_steps: 3 -> 1" in document


def made(*pieces: Piece) -> Past | tuple[object, ...]:
    return deployments(pieces)[0]


def test_a_drop_in_and_an_environment_file_are_applied_as_systemd_does() -> None:
    unit = parse_unit_files(
        "/etc/systemd/system/serve.service",
        "[Service]\nExecStart=-/opt/e/bin/python -m sglang.launch_server \\\n  # why\n  --model-path /m --tp 2\n"
        "EnvironmentFile=-/etc/default/serve\nEnvironment=CUDA_VISIBLE_DEVICES=0,1\n",
        [("/etc/systemd/system/serve.service.d/gpu.conf", "[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=1\n")],
        {"/etc/default/serve": 'export HF_TOKEN=x\nHF_HOME="/data/hf"\nCACHE=$HOME/c\n'},
    )
    assert unit.exec_start == "/opt/e/bin/python -m sglang.launch_server --model-path /m --tp 2"
    assert unit.env == {"CUDA_VISIBLE_DEVICES": "1", "HF_HOME": "/data/hf", "CACHE": "$HOME/c"}
    said = " | ".join(unit.notes)
    assert "(CUDA_VISIBLE_DEVICES) comes from the drop-in" in said
    assert "/etc/default/serve line 1 is ignored by systemd" in said
    assert "line 3: $HOME/c is not expanded" in said
    reset = parse_unit_files(
        "/u", "[Service]\nExecStart=/a\n", [("/u.d/x.conf", "[Service]\nExecStart=\nExecStart=/b\n")]
    )
    assert reset.exec_start == "/b"


def test_a_unit_tells_its_starts_its_last_end_and_a_conflict_of_ranks_and_gpus() -> None:
    path = "/etc/systemd/system/serve.service"
    journal = (
        "1767000000.000001 box systemd[1]: Started serve.service - Serve.\n"
        "1767000100.5 box systemd[1]: serve.service: Main process exited, code=killed, status=9/KILL\n"
        "1767000200.25 box systemd[1]: Started serve.service - Serve.\n"
        "1767000203.0 box python[77]: [2025-12-29 09:23:23] server_args=ServerArgs(model_path='/m', tp_size=4)\n"
    )
    found, _ = deployments(
        [
            Piece(
                kind="unit",
                path=path,
                time=1766000000.0,
                detail="system",
                text="[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=1\nExecStart=/opt/start.sh\n",
            ),
            Piece(
                kind="script",
                path="/opt/start.sh",
                detail=path,
                text="#!/bin/bash\nMODEL=/models/q\nexec vllm serve $MODEL --port ${PORT:-8100} -tp 2\n",
            ),
            Piece(
                kind="state",
                path="serve.service",
                detail=path,
                text="ActiveState=inactive\nUnitFileState=enabled\nResult=oom-kill\n",
            ),
            Piece(kind="journal", path="serve.service", detail=path, text=journal),
        ]
    )
    unit, echo = found
    assert (unit.source, unit.engine, unit.t, unit.state) == (
        "unit",
        "vllm",
        1767000200.25,
        "inactive, enabled, result oom-kill",
    )
    assert (unit.settings.model, unit.settings.port, unit.settings.tp) == ("/models/q", 8100, 2)
    assert "2 starts in the journal" in unit.notes
    assert "last end: Main process exited, code=killed, status=9/KILL" in unit.notes
    assert any("2 ranks need 2 GPUs, and CUDA_VISIBLE_DEVICES=1 shows 1" in note for note in unit.notes)
    assert (echo.source, echo.t, echo.settings.tp) == ("journal", 1767000203.0, 4)


@pytest.mark.parametrize(
    ("text", "argv", "env"),
    [
        ("nohup vllm serve org/m --port 8001 > s.log 2>&1 &", ("vllm", "serve", "org/m", "--port", "8001"), {}),
        ("cd /w && CUDA_VISIBLE_DEVICES=2 python3 -m sglang.launch_server --model-path /m; echo done",
         ("python3", "-m", "sglang.launch_server", "--model-path", "/m"), {"CUDA_VISIBLE_DEVICES": "2"}),
        ("tmux new -d -s q 'vllm serve org/m'", ("vllm", "serve", "org/m"), {}),
        ("ssh gpu7 'sudo -E vllm serve org/m'", ("vllm", "serve", "org/m"), {}),
        ("export HF_HOME=/d\nM=org/m\nuv run vllm serve \"$M\" \\\n  --port 9",
         ("vllm", "serve", "org/m", "--port", "9"), {"HF_HOME": "/d"}),
        ("bash -lc 'source v/bin/activate; exec llama-server -m /m.gguf --port 8080'",
         ("llama-server", "-m", "/m.gguf", "--port", "8080"), {}),
        ("docker run --gpus all -v /m:/m -e HF_HOME=/m -p 80:80 --name vllm vllm/vllm-openai:v0.30.1 --model org/m",
         ("vllm", "serve", "--model", "org/m"), {"HF_HOME": "/m"}),
        ("docker run lmsysorg/sglang:v0.5.11 python3 -m sglang.launch_server --model-path /m",
         ("python3", "-m", "sglang.launch_server", "--model-path", "/m"), {}),
    ],
)  # fmt: skip
def test_a_server_is_found_in_shell_text_whatever_starts_it(
    text: str, argv: tuple[str, ...], env: dict[str, str]
) -> None:
    (started,) = started_in(text)
    assert (started.argv, started.env) == (argv, env)


@pytest.mark.parametrize(
    "text",
    [
        "tail -f vllm.log", "grep -r 'vllm serve' .", "pip install vllm", "vim sglang/launch_server.py",
        "# vllm serve m",
        "kill $(pgrep -f 'sglang.launch_server')", "it's \"broken", "systemctl restart vllm",
        "", "a" * 5000, "((((", "\\",
    ],
)  # fmt: skip
def test_text_that_starts_no_server_is_none(text: str) -> None:
    assert started_in(text) == ()


def test_histories_of_all_shells_keep_time_and_order() -> None:
    text = (
        "3\t\tvllm serve org/first\n5\t1766000000\tvllm serve org/second --api-key sk-abc\n"
        "9\t1767000000\tnvidia-smi\ntotal\t\t9\n"
    )
    found, remarks = deployments([Piece(kind="history", path="/h/.zsh_history", time=1768000000.0, text=text)])
    assert [(one.settings.model, one.t, one.before) for one in found] == [
        ("org/first", None, 1766000000.0),
        ("org/second", 1766000000.0, None),
    ]
    assert found[1].where == "/h/.zsh_history:5"
    assert remarks == ()


def test_containers_tell_flags_environment_and_how_they_ended() -> None:
    page = [
        {
            "Name": "/q",
            "Config": {
                "Image": "vllm/vllm-openai:v0.29.0",
                "Entrypoint": ["vllm", "serve"],
                "Cmd": ["org/m", "--tensor-parallel-size", "4"],
                "Env": ["HF_TOKEN=hf_x", "PATH=/bin"],
            },
            "State": {"Status": "exited", "ExitCode": 137, "OOMKilled": True, "StartedAt": "2026-01-05T10:00:00.5Z"},
        },
        {"Name": "/db", "Config": {"Image": "vllm-exporter", "Cmd": None}, "State": {}},
    ]
    (one,) = (
        d for d in deployments([Piece(kind="docker", path="docker", text=json.dumps(page))])[0] if d.where == "docker q"
    )
    assert (one.settings.tp, one.settings.model, one.image) == (4, "org/m", "vllm/vllm-openai:v0.29.0")
    assert (one.state, one.t) == ("exited 137, out of memory", 1767607200.0)
    assert one.env == {"HF_TOKEN": "hf_x"}
    assert deployments([Piece(kind="docker", path="docker", text="[{broken")])[0] == ()


COMPOSE = """\
x-gpu: &gpu
  environment:
    CUDA_VISIBLE_DEVICES: "0,1"
    HF_TOKEN: ${HF_TOKEN}
services:
  qwen:
    <<: *gpu
    image: vllm/vllm-openai:${TAG:-v0.11.0}
    command: >
      --model Qwen/Qwen3.6-27B --tensor-parallel-size ${TP}
      --max-num-seqs 64 --served-name-from $UNSET
  sgl:
    image: lmsysorg/sglang:latest
    entrypoint: ["python3", "-m", "sglang.launch_server"]
    command: ["--model-path", "/m", "--tp", "2", "--cost", "$$5"]
    environment: ["HF_HOME=/data/hf", "UNSET"]
  web: {image: nginx, command: 7}
  odd: text
"""


def test_a_compose_file_tells_its_servers_with_anchors_folds_and_variables_filled_in() -> None:
    path = "/srv/llm/compose.yaml"
    found, _ = deployments(
        [
            Piece(kind="compose", path=path, time=1_700_000_000.0, text=COMPOSE),
            Piece(kind="envfile", path="/srv/llm/.env", detail=path, text="TP=4\nHF_TOKEN=hf-secret-1\n"),
        ]
    )
    one = {deployment.where.rpartition(" ")[2]: deployment for deployment in found}
    assert set(one) == {"qwen", "sgl"}
    qwen, sgl = one["qwen"], one["sgl"]
    assert (qwen.source, qwen.engine, qwen.image, qwen.t) == (
        *("compose", "vllm", "vllm/vllm-openai:v0.11.0"), 1_700_000_000.0,
    )  # fmt: skip
    assert (qwen.settings.model, qwen.settings.tp, qwen.settings.max_running) == ("Qwen/Qwen3.6-27B", 4, 64)
    assert qwen.env == {"CUDA_VISIBLE_DEVICES": "0,1", "HF_TOKEN": "hf-secret-1"}
    assert "$UNSET" in qwen.settings.raw
    assert (sgl.engine, sgl.settings.tp, sgl.settings.raw, sgl.env) == (
        *("sglang", 2, ("--cost", "$5")), {"HF_HOME": "/data/hf"},
    )  # fmt: skip
    again = spec_of(qwen, "gpu1")
    assert (again.method, again.image, again.program, again.settings.tp) == ("docker", qwen.image, (), 4)
    document = json.dumps(as_document(past_of(found)), default=str)
    assert "hf-secret-1" not in document
    assert key_of(qwen) in document
    for text in ("", "a: [", "services: 3", "- 1", "services: {a: {image: [1]}}", "\0", "&a [*a]"):
        assert deployments([Piece(kind="compose", path=path, text=text)])[0] == ()


async def test_a_compose_file_on_the_host_is_found_with_its_env_file(session: Session, home: Path) -> None:
    (home / "llm").mkdir()
    (home / "llm" / "docker-compose.yml").write_text(COMPOSE)
    (home / "llm" / ".env").write_text("TP=8\n")
    script = deployments_script(searched(), units=[], scripts=[str(home)], logs=[])
    answer = await session.host("local").run(script, timeout_s=60)
    found, _ = deployments(parse_pieces(answer.out)[0])
    mine = {one.where: one for one in found if one.where.startswith(str(home))}
    assert mine[f"{home}/llm/docker-compose.yml qwen"].settings.tp == 8


def past_of(found: tuple[Deployment, ...]) -> Past:
    return Past(host="h", deployments=found, remarks=(), running=(), found=Found())


def test_a_printed_servers_own_choices_are_left_to_it_when_it_is_started_again() -> None:
    (log,), _ = deployments([Piece(kind="log", path="/l", text=LOG)])
    again = spec_of(log, "h").settings
    assert (again.model, again.tp, again.quantization) == ("/models/Qwen3.6-27B-AWQ", 2, "awq_marlin")
    assert (again.mem_fraction, again.raw) == (None, ())


def test_what_an_engine_prints_of_itself_becomes_settings() -> None:
    sglang = read_echo(
        "[2026-06-01 10:00:00 TP0] server_args=ServerArgs(model_path='/m', tp_size=2, speculative_algorithm='EAGLE', "
        "speculative_num_steps=3, mem_fraction_static=0.9, log_level='info', odd=Thing(a=1), disable_radix_cache=True)"
    )
    assert sglang is not None
    assert (sglang.resolved, sglang.settings.raw) == (True, ())
    assert (sglang.settings.tp, sglang.settings.spec_steps, sglang.settings.prefix_cache) == (2, 3, False)
    json_form = read_echo('[2026-09-01 10:00:00] server_args={"model_path": "/m", "dp_size": 4, "hicache_size": 30}')
    assert json_form is not None
    assert (json_form.settings.dp, json_form.settings.hicache_gb) == (4, 30.0)
    vllm = read_echo(
        "(APIServer pid=7) INFO 06-01 10:00:00 [utils.py:1] non-default args: {'model_tag': 'org/m', 'port': 8001, "
        "'max_num_seqs': 64, 'enable_prefix_caching': False, 'compilation_config': <Config object at 0x1>}"
    )
    assert vllm is not None
    assert (vllm.resolved, vllm.settings.model, vllm.settings.max_running) == (False, "org/m", 64)
    assert vllm.settings.prefix_cache is False
    assert read_echo("server_args=ServerArgs(model_path='/m'") is None
    assert read_echo("a line about server_args= and nothing else") is None


async def test_a_diagnosis_of_a_slower_server_says_what_changed_since(
    session: Session, remembering_home: Path, unused_tcp_port: int
) -> None:
    (remembering_home / "now.log").write_text("")
    facts = (("single_tps", "37"), ("remembered_tps", "70"))
    found = await diagnose_all(session, Sources(target=f"local:{unused_tcp_port}", facts=facts))
    changed = next(finding for finding in found.findings if finding.code == "CHANGED_SINCE")
    assert "spec_steps: 3 -> 1" in changed.claim + " ".join(changed.evidence)
    assert any("sglang-qwen.service" in line for line in changed.evidence)
    assert any("quantization: awq_marlin -> not given" in line for line in changed.evidence)
    assert "sk-" not in changed.claim + " ".join(changed.evidence)
    calm = await diagnose_all(session, Sources(target=f"local:{unused_tcp_port}", facts=(("single_tps", "37"),)))
    assert "CHANGED_SINCE" not in [finding.code for finding in calm.findings], "nobody says that it was faster"


async def test_a_launch_whose_secrets_were_not_kept_says_which_to_give_again_and_is_not_compared_with_itself(
    session: Session, engine_dir: Path, unused_tcp_port: int
) -> None:
    settings = Settings(model="tiny", port=unused_tcp_port, raw=("--api-key", "sk-one-two"))
    spec = LaunchSpec(
        host="local", engine="vllm", program=(str(engine_dir),), settings=settings, env={"HF_TOKEN": "hf_" + "x" * 20}
    )
    done = await session.execute("server.launch", spec=spec, timeout_s=60)
    past = await look_back(session, "local", compare=True)
    mine = [one for one in past.deployments if one.where == done.state.log_path and one.source == "tokpit"]
    assert [one.argv[-1] for one in mine] == ["***"]
    assert not [pair for pair in past.compared if pair.deployment in mine and pair.server.pid == done.state.pid]
    again = await earlier_spec(session, "local", key_of(mine[0]))
    again = overridden(again, {"port": unused_tcp_port + 1}, (), {})
    with pytest.raises(UsageError, match="secrets are not stored, and this launch had --api-key, HF_TOKEN") as caught:
        await session.execute("server.launch", spec=again)
    assert caught.value.hint == "give the value again: -e HF_TOKEN=VALUE -- --api-key VALUE"
    given = overridden(again, {}, ("--api-key", "sk-three"), {"HF_TOKEN": "hf_other"})
    assert (await plan(session, given)).argv[-2:] == ("--api-key", "sk-three")
