from __future__ import annotations

from pathlib import Path

import pytest

from tokpit.config.inventory import Inventory, load_inventory, parse_destination, resolve
from tokpit.domain.hostspec import HostSpec
from tokpit.errors import ConfigError, UnknownHost, UsageError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKPIT_CONFIG_DIR", str(tmp_path))
    return tmp_path


def test_no_files_is_an_empty_inventory(folder: Path) -> None:
    assert load_inventory().hosts == {}


def test_hosts_of_both_files_come_together(folder: Path) -> None:
    (folder / "hosts.toml").write_text(
        '[hosts.big]\naddress = "10.1.2.3"\nuser = "ops"\nport = 2222\nidentity_files = ["~/.ssh/lab"]\n'
        'jump = "gate"\ngroup = "lab"\n[hosts.big.programs]\nvllm = "/opt/v"\n'
    )
    (folder / "config.toml").write_text('theme = "x"\n[hosts.desk]\nlocal = true\n')
    hosts = load_inventory().hosts
    assert hosts["big"] == HostSpec(
        name="big",
        address="10.1.2.3",
        user="ops",
        port=2222,
        identity_files=("~/.ssh/lab",),
        jump="gate",
        group="lab",
        programs={"vllm": "/opt/v"},
    )
    assert hosts["desk"].local
    assert [spec.name for spec in load_inventory().group("lab")] == ["big"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('[hosts.a]\nusr = "x"\n', ["hosts.toml", "[hosts.a]", "'usr'", "'user'"]),
        ('[hosts.a]\nport = "22"\n', ["hosts.toml", "[hosts.a]", "'port'", "expected `int"]),
        ("[hosts.a]\nport = 70000\n", ["[hosts.a]", "'port'", "70000"]),
        ('[hosts.a]\nname = "b"\n', ["[hosts.a]", "'name'"]),
        ('[hosts.a]\naddress = "me@there"\n', ["[hosts.a]", "'address'", "user"]),
        ("[hosts.a]\nclock_factor = 0\n", ["[hosts.a]", "'clock_factor'"]),
        ('[hosts."a b"]\n', ["[hosts.a b]"]),
        ("hosts = 3\n", ["hosts.toml", "table"]),
        ("[host.a]\n", ["hosts.toml", "'host'", "'hosts'"]),
        ("[hosts.a\n", ["hosts.toml", "TOML"]),
    ],
)
def test_complaint_names_file_table_key_and_a_way_out(folder: Path, text: str, parts: list[str]) -> None:
    (folder / "hosts.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_inventory()
    said = f"{caught.value.message} {caught.value.hint}"
    assert [part for part in parts if part not in said] == []


def test_one_host_in_two_files_is_refused(folder: Path) -> None:
    (folder / "hosts.toml").write_text("[hosts.a]\n")
    (folder / "config.toml").write_text("[hosts.a]\n")
    with pytest.raises(ConfigError, match=r"hosts\.toml too"):
        load_inventory()


def test_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_inventory(tmp_path / "nowhere.toml")
    (tmp_path / "mine.toml").write_text("[hosts.a]\n")
    assert list(load_inventory(tmp_path / "mine.toml").hosts) == ["a"]


def test_names_on_the_command_line_become_hosts() -> None:
    known = HostSpec(name="big", address="10.1.2.3", jump="gate")
    inventory = Inventory({"big": known})
    assert resolve("big", inventory) is known
    assert resolve("local", inventory) == HostSpec(name="local", local=True)
    assert resolve("localhost", inventory).local
    assert resolve("alias-of-ssh", inventory) == HostSpec(name="alias-of-ssh")
    assert resolve("me@far.example:2200", inventory) == HostSpec(
        name="me@far.example:2200", address="far.example", user="me", port=2200
    )
    assert resolve("ssh://me@far.example:2200/", inventory) == resolve("me@far.example:2200", inventory)
    other = resolve("root@big", inventory)
    assert (other.name, other.address, other.user, other.jump) == ("root@big", "10.1.2.3", "root", "gate")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("box", (None, "box", None)),
        ("me@box", ("me", "box", None)),
        ("me@corp@box:22", ("me@corp", "box", 22)),
        ("[fe80::1%eth0]:2222", (None, "fe80::1%eth0", 2222)),
        ("2001:db8::7", (None, "2001:db8::7", None)),
        ("ssh://me@[2001:db8::7]", ("me", "2001:db8::7", None)),
    ],
)
def test_destination_is_taken_apart(text: str, parts: tuple[str | None, str, int | None]) -> None:
    assert parse_destination(text) == parts


@pytest.mark.parametrize("text", ["", "@box", "box:", "box:x", "box:0", "box:70000", "-oProxyCommand=x", "a b", "a/b"])
def test_word_that_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_destination(text)
    with pytest.raises(UnknownHost):
        resolve(text, Inventory())
