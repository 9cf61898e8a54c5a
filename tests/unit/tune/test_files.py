"""Experiments in TOML files, and the example of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.errors import ConfigError, UsageError
from tokpit.ops.tuning.files import read_experiment
from tokpit.store.journal import Event, First, Journal, entries
from tokpit.tune.experiment import checked

PAGE = Path(__file__).parents[3] / "docs" / "tuning.md"


def test_the_example_of_the_documentation_is_read_and_can_be_run(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    file = tmp_path / "experiment.toml"
    file.write_text(found[1])
    experiment = checked(read_experiment(file))
    assert experiment.target == "gpu1:30000"
    assert experiment.space().size == 5 * 3 * 3 * 2
    assert (experiment.limits.minutes, experiment.search.repeats, experiment.objective.slo) == (
        90.0,
        2,
        "ttft=2s,tpot=60ms",
    )
    assert experiment.sweep_args()["levels"] == "1,8,32"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limits]\nminute = 3\n", "Did you mean 'minutes'"),
        ("[vary\n", "no valid TOML"),
        ("vary = 3\n", "vary"),
        ("[search]\nrepeats = 'two'\n", "[search]"),
        ("objectives = 1\n", "objective"),
    ],
)
def test_a_wrong_file_is_one_sentence_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_experiment(file)
    assert said in f"{caught.value.message} {caught.value.hint}"
    with pytest.raises(ConfigError, match="does not exist"):
        read_experiment(tmp_path / "none.toml")


def test_a_journal_keeps_whole_events_masks_secrets_and_is_held_by_one(tmp_path: Path) -> None:
    spec = LaunchSpec(host="gpu1", engine="vllm", program=("vllm",), settings=Settings(), env={"HF_TOKEN": "hf_secret"})
    first = First(spec=spec, argv=("vllm", "--api-key", "sk-secret"), port=8000)
    begin = {"title": "t", "host": "gpu1", "port": 8000, "argv": first.argv}
    with Journal.create(tmp_path, "abc-1", first, begin) as journal:
        with pytest.raises(UsageError, match="under way in another tokpit"):
            Journal(tmp_path, "abc-1").hold()
        assert [entry.state for entry in entries(tmp_path)] == ["running"]
        with journal.path.open("ab") as file:
            file.write(b'{"t":1,"kind":"tri')  # a crash in the middle of a line
        journal.add("note", text="after")
    assert [event.kind for event in journal.events()] == ["begin", "note"]
    assert isinstance(journal.events()[0], Event)
    assert "sk-secret" not in journal.path.read_text()
    found = Journal.find(tmp_path, "abc")
    assert found.first() == first, "what is needed to put it back is kept whole, for its owner alone"
    assert [entry.state for entry in entries(tmp_path)] == ["open"]
    found.forget_first()
    assert [entry.state for entry in entries(tmp_path)] == ["ended"]
    assert not any("secret" in path.read_text() for path in tmp_path.iterdir())
    with pytest.raises(UsageError, match="no experiment begins with"):
        Journal.find(tmp_path, "zzz")
