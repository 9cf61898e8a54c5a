"""What a rule is asked about (settings, version, model, host, environment), and how rules are run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.settings import Settings
from tokpit.domain.verdict import Fix, RuleAnswer
from tokpit.engines.verdictkit.versions import between, since

_HYBRID = re.compile(
    r"(?i)qwen3_?next|qwen3_5|qwen3_6|mamba|nemotron_?h|falcon_?h1|jamba|bamba|zamba|kimi_?linear|granitemoehybrid|"
    r"lfm2|"
    r"minimax(?:text|m1)|plamo2|ring.*linear|bailing.*linear"
)


_FAMILY = re.compile(
    r"(?i)qwen-?3[._](?:[5-9](?!\d*b))|qwen-?3(?:[._]\d)?[\w.-]*?-next|nemotron-?(?:h\b|h-|3-|[\w.-]*nano-(?:9b|12b)?-?v2)|"
    r"jamba|bamba|zamba|falcon-?h1|granite-?4(?:\.\d+)?-h|kimi-linear|lfm2|mamba|minimax-(?:text-01|m1)|plamo-?2|"
    r"(?:ring|ling)-[\w.-]*linear|hunyuan-t1"
)
"""Families whose models have recurrent state, as their names are written in hubs and folders."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One question to all rules."""

    settings: Settings
    version: str | None = None
    model: ModelFacts = ModelFacts()
    host: HostFacts = HostFacts()
    env: Mapping[str, str] = {}
    guess: bool = True
    """Whether the model's name may stand in for facts that are not known."""

    def flag(self, *names: str) -> str | None:
        """The value of a raw flag, the last one given; an empty text for a bare switch, None where it is not given."""
        found: str | None = None
        raw = self.settings.raw
        for index, word in enumerate(raw):
            name, equals, value = word.partition("=")
            if name in names:
                following = raw[index + 1] if index + 1 < len(raw) else "--"
                found = value if equals else ("" if following.startswith("--") else following)
        return found

    def flag_int(self, *names: str) -> int | None:
        """As `flag`, as a whole number; None where it is none."""
        value = self.flag(*names)
        return int(value) if value is not None and re.fullmatch(r"-?\d{1,15}", value) else None

    @property
    def speculates(self) -> bool:
        """Whether speculation is asked for."""
        return self.settings.spec_method is not None and self.settings.spec_steps != 0

    @property
    def hybrid(self) -> bool | None:
        """Whether the model has recurrent state: as its facts say, else by its architecture's name, else by its own
        name (where `guess` allows it); None: not known.
        """
        if self.model.hybrid is not None:
            return self.model.hybrid
        if self.model.architecture is not None:
            return True if _HYBRID.search(self.model.architecture) else None
        return True if self.guess and self.settings.model and _FAMILY.search(self.settings.model) else None

    @property
    def memory_bytes(self) -> int | None:
        """Host memory that a start may use: the smaller of MemAvailable and the cgroup limit; None: not known."""
        known = [v for v in (self.host.mem_available_bytes, self.host.cgroup_limit_bytes) if v is not None]
        return min(known) if known else None

    def since(self, first: str) -> bool | None:
        """Whether the engine is of this release or later; None where its version is unknown."""
        return since(self.version, first)

    def between(self, first: str, last: str) -> bool | None:
        """Whether the engine is of these releases; None where its version is unknown."""
        return between(self.version, first, last)


Rule = Callable[[Ask], RuleAnswer | None]


def run(rules: Sequence[Rule], ask: Ask) -> list[RuleAnswer]:
    """What the rules say: errors first, then warnings, then information, each in the order of the registry.

    An error that rests on the model's name alone is a warning.
    """
    order = {"error": 0, "warning": 1, "info": 2}
    certain = msgspec.structs.replace(ask, guess=False)
    guessed = ask.hybrid is not certain.hybrid
    answers: list[RuleAnswer] = []
    for rule in rules:
        said = rule(ask)
        if said is None:
            continue
        if guessed and said.severity == "error" and said != rule(certain):
            said = msgspec.structs.replace(said, severity="warning", sentence=said.sentence + _LIKELY)
        answers.append(said)
    return sorted(answers, key=lambda said: order[said.severity])


_LIKELY = " (Likely: the model's name is that of a family with recurrent state; its config.json would tell.)"


def answer(code: str, severity: str, sentence: str, arithmetic: str = "", fixes: Iterable[Fix] = ()) -> RuleAnswer:
    """A rule's answer; `severity` is `error`, `warning` or `info`."""
    return RuleAnswer(code=code, severity=severity, sentence=sentence, arithmetic=arithmetic, fixes=tuple(fixes))


def fix(label: str, **settings: object) -> Fix:
    """A fix that changes canonical settings."""
    return Fix(label=label, settings=settings)


def gb(size: float) -> str:
    """Bytes as GB (1e9), one decimal."""
    return f"{size / 1e9:.1f} GB"
