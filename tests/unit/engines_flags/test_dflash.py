"""Draft models as choices of a launch: method, draft model and block size, in each engine's own words."""

from __future__ import annotations

import pytest

from tokpit.cli.settings_options import given_settings
from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.settings import Settings
from tokpit.engines.registry import engine
from tokpit.errors import UsageError
from tokpit.ui.forms import launch_spec

WANTED = Settings(model="M", spec_method="dflash", draft_model="D", spec_draft_tokens=16)


def rules(settings: Settings, version: str, name: str = "sglang") -> list[tuple[str, str]]:
    found = engine(name).check_rules(settings, version, ModelFacts(), HostFacts(), {})
    return [(one.code, one.severity) for one in found if one.severity != "info"]


def test_one_block_in_the_words_of_each_engine() -> None:
    flags = engine("sglang").to_flags(WANTED, "0.5.23")
    assert flags[2:] == (
        *("--speculative-algorithm", "DFLASH", "--speculative-num-draft-tokens", "16"),
        *("--speculative-draft-model-path", "D"),
    )
    assert engine("sglang").from_flags(flags, "0.5.23") == WANTED
    config = engine("vllm").to_flags(WANTED, "0.32.0")[-1]
    assert config == '{"method": "dflash", "model": "D", "num_speculative_tokens": 15}'
    assert engine("llamacpp").to_flags(WANTED, "b10434")[-2:] == ("--spec-draft-n-max", "15")


@pytest.mark.parametrize(("name", "version"), [("sglang", "0.5.10"), ("vllm", "0.23.0"), ("llamacpp", "b8000")])
def test_a_version_without_it_says_which_one_has_it(name: str, version: str) -> None:
    with pytest.raises(UsageError):
        engine(name).to_flags(WANTED, version)


def test_the_block_size_has_two_names_in_sglang() -> None:
    flags = ("--speculative-algorithm", "DFLASH", "--speculative-dflash-block-size", "8")
    assert engine("sglang").from_flags(flags, "0.5.23").spec_draft_tokens == 8
    both = engine("sglang").from_flags((*flags, "--speculative-num-draft-tokens", "16"), "0.5.23")
    assert (both.spec_draft_tokens, both.raw) == (16, ("--speculative-dflash-block-size", "8"))
    told = Settings(model="M", spec_method="dflash", draft_model="D", spec_draft_tokens=16, raw=both.raw)
    assert ("FLAG_CONFLICT", "error") in rules(told, "0.5.23")


def test_what_does_not_go_with_a_block() -> None:
    assert rules(WANTED, "0.5.23") == []
    assert rules(Settings(model="M", spec_method="dflash"), "0.5.23") == [("SPEC_NO_DRAFT_MODEL", "error")]
    piped = Settings(model="M", spec_method="dflash", draft_model="D", pp=2)
    assert rules(piped, "0.5.23") == [("FLAG_CONFLICT", "error")]
    stepped = Settings(model="M", spec_method="dflash", draft_model="D", spec_steps=3)
    assert rules(stepped, "0.5.23") == [("SPEC_DRAFT_TOKENS_ADJUSTED", "warning")]


def test_the_options_and_the_form_ask_for_the_same() -> None:
    given = given_settings({"model": "M", "spec_method": "dflash", "draft_model": "D", "draft_block": 16})
    assert Settings(**given) == WANTED
    fields = {"model": "M", "spec_method": "DFlash", "draft_model": "D", "spec_block": "16"}
    assert launch_spec("h", "sglang", fields, program=()).settings == WANTED
    with pytest.raises(UsageError, match="--draft-block"):
        given_settings({"draft_block": 16, "mtp_steps": 3})
    for bad in ({"spec_method": "magic"}, {"spec_block": "16"}, {"draft_model": "D"}, {"spec_block": "one"}):
        with pytest.raises(UsageError):
            launch_spec("h", "sglang", {"model": "M", **bad}, program=())
