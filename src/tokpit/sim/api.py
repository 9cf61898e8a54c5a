"""SGLang's HTTP surface over a `Serving`: OpenAI completions, information routes, metrics, cache flush."""

from __future__ import annotations

import argparse
import datetime
import json
import zlib
from typing import Any

from tokpit.sim import prom, story, words
from tokpit.sim.batch import Request
from tokpit.sim.httpd import Answer, Query, Stream
from tokpit.sim.journal import Journal
from tokpit.sim.serving import Serving

TEMPLATE_TOKENS = 12
"""Tokens that a chat template puts around the messages."""


class BadRequest(Exception):
    """The request is refused with status 400 and this message."""


class Api:
    """Answers queries; `ready` is set once the warm-up is through."""

    def __init__(self, args: argparse.Namespace, serving: Serving, journal: Journal) -> None:
        self.args = args
        self.serving = serving
        self.journal = journal
        self.ready = False
        self.model = args.served_model_name or args.model_path
        self._quiet = tuple(args.uvicorn_access_log_exclude_prefixes or ())

    def log(self, query: Query) -> None:
        """The access line."""
        if not (self._quiet and query.path.startswith(self._quiet)):
            reason = "OK" if query.status == 200 else _REASONS.get(query.status, "")
            target = f"{query.path}?{query.query}" if query.query else query.path
            self.journal.access(query.peer, query.method, target, query.status, reason)

    async def handle(self, query: Query) -> Answer | None:
        """One query to its answer; None where a stream was written."""
        key = self.args.api_key
        open_path = query.path.startswith(("/health", "/metrics"))
        if key and not open_path and query.headers.get("authorization") != f"Bearer {key}":
            return Answer.of({"error": "Unauthorized"}, 401)
        match query.method, query.path:
            case "POST", "/v1/chat/completions" | "/v1/completions":
                return await self._complete(query)
            case "GET", "/health" | "/health_generate":
                return Answer(b"", 200 if self.ready and not self.serving.draining else 503, "text/plain")
            case "GET", "/v1/models":
                return Answer.of(self._models())
            case "GET", "/metrics" | "/metrics/" if self.args.enable_metrics:
                page = prom.page(self.model, self.serving.gauges(), self.serving.counters)
                return Answer(page.encode(), kind="text/plain; version=0.0.4; charset=utf-8")
            case "GET", "/server_info" | "/get_server_info":
                return Answer.of(self._server_info())
            case "GET", "/model_info" | "/get_model_info":
                return Answer.of(self._model_info())
            case "GET", "/v1/loads":
                return Answer.of(self._loads())
            case "GET" | "POST", "/flush_cache":
                if self.serving.flush_cache():
                    self.journal.line("Cache flushed successfully!")
                    text = "Cache flushed.\nPlease check backend logs for more details."
                    return Answer(text.encode(), kind="text/plain; charset=utf-8")
                return Answer(
                    b"Flush cache failed.\nThere are running or waiting requests.", 400, "text/plain; charset=utf-8"
                )
            case _:
                return Answer.of({"detail": "Not Found"}, 404)

    # Completions.

    async def _complete(self, query: Query) -> Answer | None:
        chat = query.path.endswith("/chat/completions")
        if self.serving.draining:
            return Answer.of({"error": "server is shutting down"}, 503)
        try:
            body = query.json()
            prompt, prompt_tokens, max_new, finish = self._read(body, chat)
        except (BadRequest, ValueError, TypeError, AttributeError) as error:
            return Answer.of(
                {"object": "error", "message": str(error), "type": "BadRequestError", "param": None, "code": 400}, 400
            )
        answer = _Completion(self, body, chat=chat, prompt=prompt, max_new=max_new, finish=finish)
        if body.get("stream"):
            await answer.stream(query, prompt_tokens)
            return None
        reader = self.serving.submit(prompt, prompt_tokens, max_new, lambda _: None)
        try:
            await reader.over
        finally:
            self.serving.abort(reader)
        return Answer.of(answer.whole(reader.request))

    def _read(self, body: dict[str, Any], chat: bool) -> tuple[str, int, int, str]:
        """Prompt text, its tokens, tokens to generate and the finish reason. Raises BadRequest."""
        if chat:
            messages = body.get("messages")
            if not isinstance(messages, list) or not messages:
                raise BadRequest("Messages cannot be empty.")
            prompt = "\n".join(_content(m.get("content")) for m in messages)
            tokens = words.count_tokens(prompt) + TEMPLATE_TOKENS
        else:
            raw = body.get("prompt")
            if raw in (None, "", []):
                raise BadRequest("Prompt cannot be empty")
            if isinstance(raw, list) and all(isinstance(i, int) for i in raw):
                prompt, tokens = str(raw), len(raw)
            else:
                prompt = raw if isinstance(raw, str) else "\n".join(map(str, raw))
                tokens = words.count_tokens(prompt)
        limit = self.serving.plan.context_len
        asked = body.get("max_completion_tokens") or body.get("max_tokens")
        if asked is None and not chat:
            asked = 16
        if tokens >= limit:
            raise BadRequest(f"The input ({tokens} tokens) is longer than the model's context length ({limit} tokens).")
        if asked is not None:
            asked = int(asked)
            if asked <= 0:
                raise BadRequest("max_new_tokens must be at least 0.")
            if tokens + asked > limit:
                raise BadRequest(
                    f"Requested token count exceeds the model's maximum context length of {limit} tokens. You "
                    f"requested a total of {tokens + asked} tokens: {tokens} tokens from the input messages and "
                    f"{asked} tokens for the completion. Please reduce the number of tokens in the input messages or "
                    "the completion to fit within the limit."
                )
        # A reasoning model writes a few thousand tokens unless it is cut short.
        natural = min(limit - tokens, 1600 + zlib.crc32(prompt.encode("utf-8", "replace")) % 2400)
        if asked is None:
            return prompt, tokens, natural, "stop"
        if body.get("ignore_eos") or asked <= natural:
            return prompt, tokens, asked, "length"
        return prompt, tokens, natural, "stop"

    # Information.

    def _models(self) -> dict[str, Any]:
        card = {
            "id": self.model,
            "object": "model",
            "created": int(self.serving.clock.now()),
            "owned_by": "sglang",
            "root": self.model,
            "parent": None,
            "max_model_len": self.serving.plan.context_len,
        }
        return {"object": "list", "data": [card]}

    def _model_info(self) -> dict[str, Any]:
        return {
            "model_path": self.args.model_path,
            "tokenizer_path": self.args.tokenizer_path or self.args.model_path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": "qwen3_5",
            "architectures": [story.MODEL_CLASS],
        }

    def _server_info(self) -> dict[str, Any]:
        plan = self.serving.plan
        resolved = {**vars(self.args), "max_mamba_cache_size": plan.slots, "mem_fraction_static": plan.mem_fraction}
        state = {
            **resolved,
            "last_gen_throughput": self.serving.gen_tps,
            "memory_usage": {
                "weight": story.WEIGHTS_GIB,
                "kvcache": round(plan.kv_gib, 2),
                "token_capacity": plan.kv_tokens,
                "graph": round(plan.graph_gib, 2),
            },
            "effective_max_running_requests_per_dp": plan.cap,
        }
        if plan.speculative:
            state["avg_spec_accept_length"] = self.serving.accept_len
        return {
            **vars(self.args),
            "status": "ready" if self.ready else "starting",
            "max_total_num_tokens": plan.kv_tokens,
            "max_req_input_len": min(plan.context_len, plan.kv_tokens) - 6,
            "internal_states": [state],
            "version": story.VERSION,
        }

    def _loads(self) -> dict[str, Any]:
        serving, plan = self.serving, self.serving.plan
        gauges = serving.gauges()
        counted = self.args.enable_metrics  # without metrics 0.5.11 leaves these at 0
        load: dict[str, Any] = {
            "dp_rank": 0,
            "num_running_reqs": int(gauges["num_running_reqs"]),
            "num_waiting_reqs": int(gauges["num_queue_reqs"]),
            "num_used_tokens": int(gauges["num_used_tokens"]),
            "max_total_num_tokens": plan.kv_tokens,
            "token_usage": gauges["token_usage"],
            "gen_throughput": gauges["gen_throughput"] if counted else 0.0,
            "cache_hit_rate": gauges["cache_hit_rate"] if counted else 0.0,
            "utilization": gauges["utilization"] if counted else 0.0,
            "max_running_requests": plan.cap,
            "memory": {
                "weight_gb": story.WEIGHTS_GIB,
                "kv_cache_gb": round(plan.kv_gib, 2),
                "graph_gb": round(plan.graph_gib, 2),
                "token_capacity": plan.kv_tokens,
            },
            "queues": {"waiting": int(gauges["num_queue_reqs"]), "grammar": 0, "paused": 0, "retracted": 0},
        }
        if plan.speculative:
            rate = gauges["spec_accept_rate"] if counted else 0.0
            load["speculative"] = {"accept_length": serving.accept_len, "accept_rate": rate}
        return {
            "timestamp": _iso(serving.clock.now()),
            "version": story.VERSION,
            "dp_rank_count": 1,
            "loads": [load],
            "aggregate": {
                "total_running_reqs": load["num_running_reqs"],
                "total_waiting_reqs": load["num_waiting_reqs"],
            },
        }


class _Completion:
    """One answer in OpenAI's forms, as SGLang words them."""

    def __init__(self, api: Api, body: dict[str, Any], *, chat: bool, prompt: str, max_new: int, finish: str) -> None:
        self.api = api
        self.chat = chat
        self.prompt = prompt
        self.max_new = max_new
        self.finish = finish
        self.seed = zlib.crc32(prompt.encode("utf-8", "replace")) & 0xFFFF
        options = body.get("stream_options") or {}
        self.include_usage = bool(options.get("include_usage"))
        self.running_usage = bool(options.get("continuous_usage_stats"))
        self.model = str(body.get("model") or api.model)
        # With a reasoning parser the first part of the answer is the thinking.
        self.thinking = max_new * 2 // 5 if chat and api.args.reasoning_parser else 0
        self.head = ""

    async def stream(self, query: Query, prompt_tokens: int) -> None:
        """Write the event stream until the answer is complete or the client has gone."""
        serving, out, sent = self.api.serving, Stream(query), 0

        def push(request: Request) -> None:
            nonlocal sent
            if query.gone:
                serving.abort(reader)
                return
            if not sent:
                out.start()
                if self.chat:
                    out.send(
                        self._event('"delta":{"role":"assistant","content":""' + _NO_EXTRAS + "}", self._use(request))
                    )
            for start, stop, thinks in self._pieces(sent, request.done):
                out.send(self._event(self._delta(start, stop, thinks), self._use(request)))
            sent = request.done

        reader = serving.submit(self.prompt, prompt_tokens, self.max_new, push)
        self._head(reader.request)
        self.api.log(query)
        try:
            await reader.over
            request = reader.request
            if request.finished is None or query.gone:
                query.keep = False
                return
            empty = '"delta":{"role":null,"content":null' + _NO_EXTRAS + "}" if self.chat else '"text":""'
            out.send(self._event(empty, self._use(request), self.finish))
            if self.include_usage:
                out.send(f'data: {self.head}"choices":[],"usage":{json.dumps(_usage(request))}}}\n\n'.encode())
            out.send(b"data: [DONE]\n\n")
            out.end()
        finally:
            serving.abort(reader)

    def whole(self, request: Request) -> dict[str, Any]:
        """The answer in one piece."""
        self._head(request)
        text = words.text(self.seed, self.thinking, request.done)
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            thought = words.text(self.seed, 0, self.thinking) if self.thinking else None
            choice["message"] = {
                "role": "assistant",
                "content": text,
                "reasoning_content": thought,
                "tool_calls": None,
            }
        else:
            choice["text"] = text
        choice |= {"logprobs": None, "finish_reason": self.finish, "matched_stop": None}
        return {
            "id": request.rid,
            "object": "chat.completion" if self.chat else "text_completion",
            "created": int(request.arrival),
            "model": self.model,
            "choices": [choice],
            "usage": _usage(request),
            "metadata": {"weight_version": "default"},
        }

    def _head(self, request: Request) -> None:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        self.head = (
            f'{{"id":"{request.rid}","object":"{kind}","created":{int(request.arrival)},'
            f'"model":{json.dumps(self.model)},'
        )

    def _pieces(self, start: int, stop: int) -> list[tuple[int, int, bool]]:
        border = self.thinking
        if start < border < stop:
            return [(start, border, True), (border, stop, False)]
        return [(start, stop, stop <= border)] if stop > start else []

    def _delta(self, start: int, stop: int, thinks: bool) -> str:
        text = json.dumps(words.text(self.seed, start, stop))
        if not self.chat:
            return f'"text":{text}'
        if thinks:
            return f'"delta":{{"role":null,"content":null,"reasoning_content":{text},"tool_calls":null}}'
        return f'"delta":{{"role":null,"content":{text}{_NO_EXTRAS}}}'

    def _use(self, request: Request) -> str:
        return json.dumps(_usage(request)) if self.running_usage else "null"

    def _event(self, inner: str, usage: str, finish: str | None = None) -> bytes:
        reason = "null" if finish is None else f'"{finish}"'
        return (
            f'data: {self.head}"choices":[{{"index":0,{inner},"logprobs":null,"finish_reason":{reason},'
            f'"matched_stop":null}}],"usage":{usage}}}\n\n'
        ).encode()


_NO_EXTRAS = ',"reasoning_content":null,"tool_calls":null'
_REASONS = {400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 503: "Service Unavailable"}


def _iso(t: float) -> str:
    return datetime.datetime.fromtimestamp(t, datetime.UTC).isoformat(timespec="seconds")


def _usage(request: Request) -> dict[str, Any]:
    return {
        "prompt_tokens": request.prompt_tokens,
        "total_tokens": request.prompt_tokens + request.done,
        "completion_tokens": request.done,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
    }


def _content(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content)
    return "" if content is None else str(content)
