"""Rules of speculative decoding (SGLang's `server_args.py`, releases 0.4.6 to 0.5.23)."""

from __future__ import annotations

from tokpit.domain.verdict import RuleAnswer
from tokpit.engines.sglang.capacity import SPEC_DEFAULT_MAX_RUNNING
from tokpit.engines.verdictkit.ask import Ask, Rule, answer, fix

_SINCE = {"draft": "0.5.2", "ngram": "0.5.3", "dflash": "0.5.11"}
_WORD = {"mtp": "NEXTN", "draft": "STANDALONE"}
_TREES_WITH_PAGES = {"flashinfer", "fa3"}


def _backend(ask: Ask) -> str | None:
    return ask.flag("--attention-backend", "--decode-attention-backend")


def method_exists(ask: Ask) -> RuleAnswer | None:
    """The algorithm must exist in this release."""
    method = ask.settings.spec_method
    first = _SINCE.get(method or "")
    if not ask.speculates or method is None or first is None or ask.since(first) is not False:
        return None
    word = _WORD.get(method, method.upper())
    return answer("FLAG_BAD_VALUE", "error", f"SGLang {ask.version} has no {word}: it came with {first}.")


def draft_model_given(ask: Ask) -> RuleAnswer | None:
    """EAGLE3, STANDALONE and DFLASH need a draft model; MTP needs heads in the checkpoint."""
    method = ask.settings.spec_method
    if not ask.speculates or ask.settings.draft_model is not None:
        return None
    if method in {"eagle3", "draft", "dflash"}:
        return answer(
            "SPEC_NO_DRAFT_MODEL", "error", f"{_WORD.get(method, method.upper())} needs a draft model's path."
        )
    if method in {"mtp", "eagle"} and ask.model.mtp_layers == 0:
        return answer(
            "SPEC_NO_DRAFT_MODEL",
            "error",
            "The checkpoint has no MTP layers, so there is nothing to draft with.",
            "mtp layers in config.json: 0",
            (fix("no speculation", spec_method=None, spec_steps=None, spec_topk=None, spec_draft_tokens=None),),
        )
    return None


def complete(ask: Ask) -> RuleAnswer | None:
    """Top-k or draft tokens without steps end in an assertion without a message."""
    s = ask.settings
    if not ask.speculates or s.spec_method not in {"mtp", "eagle", "eagle3", "draft"} or s.spec_steps is not None:
        return None
    if s.spec_topk is None and s.spec_draft_tokens is None:
        return None
    steps = max(1, (s.spec_draft_tokens or 4) - 1)
    return answer(
        "FLAG_SPEC_INCOMPLETE",
        "error",
        "Steps, top-k and draft tokens belong together: SGLang stops where steps are missing.",
        fixes=(fix(f"steps {steps}", spec_steps=steps, spec_topk=s.spec_topk or 1, spec_draft_tokens=steps + 1),),
    )


def draft_tokens_follow_steps(ask: Ask) -> RuleAnswer | None:
    """With top-k 1 the draft is a chain: SGLang silently makes it steps + 1 tokens."""
    s = ask.settings
    if not ask.speculates or s.spec_topk not in (None, 1) or s.spec_steps is None or s.spec_draft_tokens is None:
        return None
    right = s.spec_steps + 1
    if s.spec_draft_tokens == right:
        return None
    return answer(
        "SPEC_DRAFT_TOKENS_ADJUSTED",
        "warning",
        f"With top-k 1 SGLang drafts steps + 1 tokens: {s.spec_draft_tokens} silently becomes {right}.",
        f"{s.spec_steps} + 1 = {right}",
        (
            fix(f"draft tokens {right}", spec_draft_tokens=right),
            fix(f"steps {s.spec_draft_tokens - 1}", spec_steps=max(1, s.spec_draft_tokens - 1)),
        ),
    )


def trees_need_small_pages(ask: Ask) -> RuleAnswer | None:
    """Top-k above 1 goes with page size 1 only, except on some attention backends."""
    topk, page, backend = ask.settings.spec_topk or 1, ask.settings.page_size or 1, _backend(ask)
    if not ask.speculates or topk <= 1:
        return None
    if backend == "trtllm_mha":
        return answer(
            "FLAG_CONFLICT", "error", "Top-k above 1 does not go with trtllm_mha.", fixes=(fix("top-k 1", spec_topk=1),)
        )
    able = _TREES_WITH_PAGES | ({"triton"} if ask.since("0.5.13") is not False else set())
    if page <= 1 or backend in able:
        return None
    severity = "error" if backend is not None else "warning"
    return answer(
        "FLAG_CONFLICT",
        severity,
        f"Top-k {topk} with page size {page} needs attention backend {' or '.join(sorted(able))}.",
        fixes=(fix("top-k 1", spec_topk=1), fix("page size 1", page_size=1)),
    )


def block_drafts(ask: Ask) -> RuleAnswer | None:
    """DFLASH drafts one block at once (`_handle_dflash`): its size is the draft tokens, steps and top-k are 1."""
    s = ask.settings
    if not ask.speculates or s.spec_method != "dflash":
        return None
    block = ask.flag("--speculative-dflash-block-size")
    if block is not None and s.spec_draft_tokens is not None and block != str(s.spec_draft_tokens):
        return answer(
            "FLAG_CONFLICT",
            "error",
            f"The block size {block} and the {s.spec_draft_tokens} draft tokens of DFLASH are one number, and differ.",
        )
    if (s.pp or 1) > 1:
        return answer(
            "FLAG_CONFLICT", "error", "DFLASH does not go with pipeline parallelism.", fixes=(fix("pp 1", pp=1),)
        )
    if (s.spec_steps or 1) > 1 or (s.spec_topk or 1) > 1:
        return answer(
            "SPEC_DRAFT_TOKENS_ADJUSTED",
            "warning",
            "DFLASH drafts one block at once: steps and top-k silently become 1; set the block size instead.",
            fixes=(fix("no steps", spec_steps=None, spec_topk=None),),
        )
    return None


def no_pipeline(ask: Ask) -> RuleAnswer | None:
    """Speculation and pipeline parallelism exclude each other up to 0.5.20."""
    if not ask.speculates or (ask.settings.pp or 1) <= 1 or ask.since("0.5.21") or ask.settings.spec_method == "dflash":
        return None
    return answer(
        "FLAG_CONFLICT",
        "error",
        "Speculation does not go with pipeline parallelism up to SGLang 0.5.20.",
        fixes=(fix("pp 1", pp=1),),
    )


def no_dp_attention(ask: Ask) -> RuleAnswer | None:
    """STANDALONE and NGRAM exclude DP attention."""
    if not ask.speculates or ask.settings.spec_method not in {"draft", "ngram"}:
        return None
    if ask.flag("--enable-dp-attention") is None:
        return None
    return answer("FLAG_CONFLICT", "error", "STANDALONE and NGRAM do not go with DP attention.")


def default_cap(ask: Ask) -> RuleAnswer | None:
    """Speculation sets max_running_requests to 48 where none is given; 0.5.8 to 0.5.12 reserve state for all."""
    if not ask.speculates or ask.settings.max_running is not None or ask.since("0.5.4") is False:
        return None
    tokens = ask.settings.spec_draft_tokens or (ask.settings.spec_steps or 3) + 1
    costly = bool(ask.hybrid) and ask.between("0.5.8", "0.5.12") is not False
    sentence = f"With speculation SGLang sets max_running_requests to {SPEC_DEFAULT_MAX_RUNNING} where none is given."
    if costly:
        sentence += (
            " Releases 0.5.8 to 0.5.12 then reserve draft state for all of them before the pools are sized: "
            "less KV cache and fewer state slots. Set it yourself."
        )
    return answer(
        "SPEC_DEFAULT_MAX_RUNNING",
        "warning" if costly else "info",
        sentence,
        f"reserved: state of one request x {SPEC_DEFAULT_MAX_RUNNING} x {tokens} draft tokens" if costly else "",
        (fix("max running 8", max_running=8), fix("max running 16", max_running=16)) if costly else (),
    )


RULES: tuple[Rule, ...] = (
    method_exists,
    draft_model_given,
    complete,
    draft_tokens_follow_steps,
    trees_need_small_pages,
    block_drafts,
    no_pipeline,
    no_dp_attention,
    default_cap,
)
