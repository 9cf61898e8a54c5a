"""Rules of recurrent state (mamba, GDN): strategies, track interval, state slots (SGLang 0.5.4 to 0.5.23)."""

from __future__ import annotations

import math

from tokpit.domain.verdict import Fix, RuleAnswer
from tokpit.engines.sglang.capacity import (
    SPEC_DEFAULT_MAX_RUNNING,
    draft_tokens_of,
    overlap_on,
    resolved_strategy,
    running_cap,
    slots_per_request,
    smallest_track_interval,
)
from tokpit.engines.verdictkit.ask import Ask, Rule, answer, fix

_BUFFERED = {"extra_buffer", "extra_buffer_lazy"}
_FLA_CHUNK = 64
DEFAULT_TRACK_INTERVAL = 256


def _overlap(ask: Ask) -> bool:
    given = ask.env.get("SGLANG_ENABLE_SPEC_V2")
    return overlap_on(
        ask.version,
        disabled=ask.flag("--disable-overlap-schedule") is not None,
        speculates=ask.speculates,
        topk=ask.settings.spec_topk,
        spec_v2=None if given is None else given.strip().lower() in {"1", "true", "yes", "on"},
    )


def _strategy(ask: Ask) -> str | None:
    return resolved_strategy(ask.settings.mamba_strategy, ask.version, overlap=_overlap(ask))


def speculation_needs_buffers(ask: Ask) -> RuleAnswer | None:
    """Speculation with the radix cache on a hybrid model needs extra_buffer (0.5.10 to 0.5.13 refuse, 0.5.9 adapts)."""
    if not ask.hybrid or not ask.speculates or ask.settings.prefix_cache is False:
        return None
    given = ask.settings.mamba_strategy
    if given in _BUFFERED or ask.since("0.5.14"):
        return None
    if ask.version is None and given in (None, "auto"):
        severity = "warning"
    else:
        severity = "error" if ask.since("0.5.10") is not False else "warning"
    env = {"SGLANG_ENABLE_SPEC_V2": "1"}
    off = fix("radix cache off", prefix_cache=False)
    buffered = Fix(label="extra_buffer", settings={"mamba_strategy": "extra_buffer"}, env=env)
    per_request = slots_per_request("extra_buffer", ask.version)
    return answer(
        "FLAG_SPEC_NEEDS_EXTRA_BUFFER",
        severity,
        "Speculation, radix cache and the no_buffer strategy exclude each other on a hybrid model: take extra_buffer "
        "with SGLANG_ENABLE_SPEC_V2=1 (a lower running cap), or the radix cache off."
        if ask.host.platform != "rocm"
        else "Speculation and radix cache exclude each other on a hybrid model on ROCm: switch the radix cache off.",
        f"state slots per request: 3 with no_buffer, {per_request} with extra_buffer, 1 without the radix cache",
        (off,) if ask.host.platform == "rocm" else (buffered, off),
    )


def buffers_without_radix(ask: Ask) -> RuleAnswer | None:
    """extra_buffer serves the radix cache only; up to 0.5.13 SGLang refuses it without."""
    if ask.settings.mamba_strategy not in _BUFFERED or ask.settings.prefix_cache is not False:
        return None
    return answer(
        "FLAG_EXTRA_BUFFER_USELESS",
        "error" if ask.version is not None and not ask.since("0.5.14") else "warning",
        "extra_buffer has no use without the radix cache, and costs about 2 state slots a request.",
        "3 - 1 = 2 slots more a request for buffers that nothing reads",
        (fix("no_buffer", mamba_strategy="no_buffer"), fix("strategy not given", mamba_strategy=None)),
    )


def state_flags_need_state(ask: Ask) -> RuleAnswer | None:
    """A strategy forced on a model without recurrent state starts, and dies on the first step."""
    if ask.hybrid is not False:
        return None
    if ask.settings.mamba_strategy in _BUFFERED:
        return answer(
            "FLAG_MAMBA_ON_NON_HYBRID",
            "error",
            "The model has no recurrent state: with extra_buffer it starts and dies on its first decode step.",
            fixes=(fix("strategy auto", mamba_strategy="auto"), fix("strategy not given", mamba_strategy=None)),
        )
    if ask.settings.state_slots is not None or ask.settings.mamba_ratio is not None:
        return answer(
            "FLAG_NO_EFFECT", "info", "State-cache settings have no effect: the model has no recurrent state."
        )
    return None


def platform_supports_buffers(ask: Ask) -> RuleAnswer | None:
    """extra_buffer runs on CUDA; on ROCm since 0.5.16; not on the CPU."""
    if ask.settings.mamba_strategy not in _BUFFERED:
        return None
    cpu = ask.host.platform == "cpu"
    if not cpu and not (ask.host.platform == "rocm" and ask.since("0.5.16") is False):
        return None
    return answer(
        "FLAG_EXTRA_BUFFER_UNSUPPORTED",
        "error",
        f"extra_buffer does not run on {ask.host.platform} in this release.",
        fixes=(
            Fix(label="no_buffer", settings={"mamba_strategy": "no_buffer"}, raw_add=("--disable-overlap-schedule",)),
        ),
    )


def lazy_buffers(ask: Ask) -> RuleAnswer | None:
    """extra_buffer_lazy: since 0.5.13, with the overlap scheduler, with speculation since 0.5.17."""
    if ask.settings.mamba_strategy != "extra_buffer_lazy":
        return None
    use = (fix("extra_buffer", mamba_strategy="extra_buffer"),)
    if ask.since("0.5.13") is False:
        return answer(
            "FLAG_BAD_VALUE", "error", f"SGLang {ask.version} has no extra_buffer_lazy: it came with 0.5.13.", fixes=use
        )
    if not _overlap(ask):
        return answer("FLAG_CONFLICT", "error", "extra_buffer_lazy needs the overlap scheduler.", fixes=use)
    if ask.speculates and ask.since("0.5.17") is False:
        return answer(
            "FLAG_CONFLICT", "error", "extra_buffer_lazy goes with speculation from 0.5.17 on only.", fixes=use
        )
    return None


def no_buffer_pages(ask: Ask) -> RuleAnswer | None:
    """no_buffer means page size 1 (set silently up to 0.5.13, asserted later), no overlap scheduler, no trtllm_mha."""
    if not ask.hybrid or _strategy(ask) != "no_buffer" or ask.settings.prefix_cache is False:
        return None
    if ask.flag("--attention-backend") == "trtllm_mha":
        return answer("FLAG_CONFLICT", "error", "no_buffer does not go with attention backend trtllm_mha.")
    if ask.settings.mamba_strategy == "no_buffer" and ask.since("0.5.14") and _overlap(ask):
        return answer(
            "FLAG_CONFLICT",
            "error",
            "no_buffer does not go with the overlap scheduler.",
            fixes=(
                Fix(label="overlap scheduler off", raw_add=("--disable-overlap-schedule",)),
                fix("strategy not given", mamba_strategy=None),
            ),
        )
    page = ask.settings.page_size or 1
    if page <= 1:
        return None
    return answer(
        "FLAG_CONFLICT",
        "error" if ask.since("0.5.14") else "warning",
        f"no_buffer works with page size 1 only, not {page}"
        + ("." if ask.since("0.5.14") else ": SGLang sets it to 1."),
        fixes=(fix("page size 1", page_size=1), fix("extra_buffer", mamba_strategy="extra_buffer")),
    )


def track_interval(ask: Ask) -> RuleAnswer | None:
    """The track interval must be at least the draft length and a multiple of the page size."""
    given = ask.flag_int("--mamba-track-interval")
    s = ask.settings
    buffered = s.mamba_strategy in _BUFFERED
    if given is None and not buffered:
        return None
    interval = given if given is not None else DEFAULT_TRACK_INTERVAL
    draft = draft_tokens_of(s.spec_steps, s.spec_topk, s.spec_draft_tokens) or s.spec_draft_tokens or 1
    page = s.page_size or 1
    if interval >= draft and interval % page == 0:
        return None
    legal = smallest_track_interval(draft, page)
    return answer(
        "FLAG_TRACK_INTERVAL",
        "error",
        f"mamba_track_interval {interval} must be >= {draft} draft tokens and a multiple of page size {page}.",
        f"smallest multiple of {page} that is >= {draft} = {legal}",
        (
            Fix(
                label=f"track interval {legal}",
                raw_remove=("--mamba-track-interval",) if given is not None else (),
                raw_add=("--mamba-track-interval", str(legal)),
            ),
        ),
    )


def page_and_chunk(ask: Ask) -> RuleAnswer | None:
    """With extra_buffer the page size and the chunk of the state kernels (64) must divide one another."""
    page = ask.settings.page_size or 1
    if ask.settings.mamba_strategy not in _BUFFERED or _FLA_CHUNK % page == 0 or page % _FLA_CHUNK == 0:
        return None
    right = 2 ** round(math.log2(page))
    return answer(
        "FLAG_CONFLICT",
        "error",
        f"With extra_buffer the page size must divide {_FLA_CHUNK} or be a multiple of it; {page} is neither.",
        f"{_FLA_CHUNK} % {page} = {_FLA_CHUNK % page}, {page} % {_FLA_CHUNK} = {page % _FLA_CHUNK}",
        (fix(f"page size {right}", page_size=right),),
    )


def _each(ask: Ask) -> int | None:
    """State slots that a running request will reserve; None: not known, or the model has no state."""
    s = ask.settings
    if ask.hybrid is False or s.state_slots is None:
        return None
    each = slots_per_request(
        s.mamba_strategy, ask.version, prefix_cache=s.prefix_cache is not False, overlap=_overlap(ask)
    )
    unsettled = each is None and ask.version is None
    refused = ask.hybrid and s.prefix_cache is not False and _strategy(ask) == "no_buffer" and not ask.since("0.5.14")
    if ask.speculates and (unsettled or refused):
        each = slots_per_request("extra_buffer")  # the only strategy under which speculation starts in every release
    return each


def _asked(ask: Ask) -> int | None:
    """The running cap that is asked for, by a flag or by speculation's own default."""
    given = ask.settings.max_running
    return given if given is not None else (SPEC_DEFAULT_MAX_RUNNING if ask.speculates else None)


def cap_of(ask: Ask) -> tuple[int | None, str]:
    """Most requests that will run at once, and the arithmetic; None where the flags do not tell."""
    slots, each, asked = ask.settings.state_slots, _each(ask), _asked(ask)
    cap, by = running_cap(configured=asked, state_slots=slots, per_request=each)
    if cap is None:
        return None, ""
    if by == "state slots" and slots is not None and each:
        return cap, f"{slots} state slots // {each} per request = {cap}"
    if ask.settings.max_running is None:
        return cap, f"speculation sets max_running_requests to {cap}"
    return cap, f"max_running_requests is set to {cap}"


def predicted_cap(ask: Ask) -> RuleAnswer | None:
    """How many requests will run at once: state slots // slots per request, whatever max_running_requests says."""
    s = ask.settings
    each, asked = _each(ask), _asked(ask)
    if each is None or s.state_slots is None:
        return None
    cap, by = running_cap(configured=asked, state_slots=s.state_slots, per_request=each)
    if cap is None:
        return None
    sums = f"{s.state_slots} state slots // {each} per request = {s.state_slots // each}"
    if by == "configured":
        return answer(
            "RUNNING_CAP", "info", f"At most {cap} requests will run at once, as configured.", f"min({cap}, {sums})"
        )
    wanted = asked if s.max_running is not None and asked is not None else None
    more = wanted * each if wanted is not None else None
    return answer(
        "QUEUE_LIMITED_BY_STATE_SLOTS",
        "error" if cap < 1 else "warning",
        f"Only {cap} request{'' if cap == 1 else 's'} will run at once, set by state slots"
        + (f" and not by max_running_requests {wanted}" if wanted is not None else "")
        + "; the rest queues. A host cache adds no running slots.",
        f"{sums}" + (f"; {wanted} x {each} = {more} slots would be needed for {wanted}" if more is not None else ""),
        (
            *((fix(f"{more} state slots", state_slots=more),) if more is not None else ()),
            Fix(label="bfloat16 state", raw_add=("--mamba-ssm-dtype", "bfloat16")),
        ),
    )


RULES: tuple[Rule, ...] = (
    speculation_needs_buffers,
    buffers_without_radix,
    state_flags_need_state,
    platform_supports_buffers,
    lazy_buffers,
    no_buffer_pages,
    track_interval,
    page_and_chunk,
    predicted_cap,
)
