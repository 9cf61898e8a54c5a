from __future__ import annotations

from pathlib import Path

import pytest

from tokpit.config.profiles import Profile, load_profile, load_profiles, profile_text, save_profile
from tokpit.domain.settings import Settings
from tokpit.errors import ConfigError, UsageError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKPIT_CONFIG_DIR", str(tmp_path))
    return tmp_path / "profiles"


FULL = Profile(
    engine="sglang",
    note='two "quoted" words',
    program="'/opt/my venv/bin/python' -m sglang.launch_server",
    method="docker",
    image="lmsysorg/sglang:v0.5.11",
    container_args=("--ipc=host",),
    settings=Settings(model="/m", tp=2, spec_method="mtp", spec_steps=3, hicache_gb=90, raw=("--watchdog", "9\n0")),
    env={"CUDA_VISIBLE_DEVICES": "0,1"},
)


def test_what_is_saved_is_read_back_whole_and_only_what_was_given_is_in_the_file(folder: Path) -> None:
    path = save_profile("qwen.mtp-3", FULL, remarks=("saved from gpu1:30000",))
    assert path == folder / "qwen.mtp-3.toml"
    assert load_profile("qwen.mtp-3") == FULL
    text = path.read_text()
    assert text.startswith("# saved from gpu1:30000\n")
    assert "cwd" not in text
    assert "kv_tokens" not in text
    assert profile_text(FULL) in text


def test_a_file_that_is_there_is_kept_unless_it_is_to_be_replaced() -> None:
    save_profile("a", FULL)
    with pytest.raises(ConfigError, match="exists already; it was kept"):
        save_profile("a", Profile(engine="vllm"))
    assert load_profile("a") == FULL
    save_profile("a", Profile(engine="vllm"), replace=True)
    assert load_profile("a").engine == "vllm"


def test_by_hand_steps_alone_mean_the_models_own_head(folder: Path) -> None:
    folder.mkdir()
    (folder / "x.toml").write_text('engine = "sglang"\n[settings]\nmodel = "m"\nspec_steps = 2\n')
    assert load_profile("x").settings.spec_method == "mtp"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('engine = "vllm"\n[settings]\nspec_step = 3\n', r"\[settings\] has no key 'spec_step'"),
        ('engine = "vllm"\nsetings = 1\n', "has no key 'setings'"),
        ('engine = "vllm"\n[settings]\ntp = "two"\n', "tp"),
        ('engine = "vllm"\nmethod = "nohup"\n', "method 'nohup' is none"),
        ('engine = "vllm"\nprogram = "a \'b"\n', "program cannot be read"),
        ('engine = "vllm"\n[env]\n"A B" = "c"\n', "no name of a variable"),
        ("[settings]\n", "engine"),
        ("engine = \n", "no valid TOML"),
    ],
)
def test_a_file_that_is_off_says_where_and_costs_only_itself(folder: Path, text: str, said: str) -> None:
    save_profile("good", FULL)
    (folder / "bad.toml").write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        load_profile("bad")
    assert "bad.toml" in error.value.message
    found = load_profiles()
    assert list(found.profiles) == ["good"]
    assert len(found.problems) == 1


def test_a_name_that_is_not_there_names_the_nearest_and_one_that_is_a_path_is_refused() -> None:
    with pytest.raises(ConfigError) as error:
        load_profile("qwen")
    assert "tokpit profiles qwen --from" in error.value.hint
    save_profile("qwen27", FULL)
    with pytest.raises(ConfigError) as error:
        load_profile("qwen2")
    assert "Did you mean 'qwen27'?" in error.value.hint
    for name in ("../etc", "", ".x", "a b", "a/b", "x" * 65):
        with pytest.raises(UsageError, match="cannot be the name"):
            load_profile(name)
