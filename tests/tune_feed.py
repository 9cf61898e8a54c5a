"""An experiment as it stands in the middle and at its end, for screens."""

from __future__ import annotations

import msgspec

from tokpit.domain.tuning import Choice, CurvePoint, LeftOut, Trial, Tuning


def curve(stream: float, *pairs: tuple[int, float]) -> tuple[CurvePoint, ...]:
    return tuple(
        CurvePoint(concurrency=c, tps=tps, half=0.01 * tps, stream_tps=stream / (1 + 0.012 * c)) for c, tps in pairs
    )


def _choice(steps: int, running: int, slots: int) -> Choice:
    return {"spec_steps": steps, "max_running": running, "state_slots": slots}


TRIALS = (
    Trial(number=0, choice=_choice(3, 9, 48), role="first", status="measured", value=393.1, half=3.9,
          points=curve(61.2, (1, 61.2), (8, 369.7), (32, 393.1)), measure_s=210.0),
    Trial(number=1, choice=_choice(3, 32, 160), status="measured", value=1011.4, half=10.1,
          points=curve(61.0, (1, 61.0), (8, 370.2), (32, 1011.4)), restart_s=152.0, measure_s=140.0),
    Trial(number=2, choice=_choice(2, 32, 160), status="measured", value=1026.2, half=11.0,
          points=curve(56.1, (1, 56.1), (8, 351.7), (32, 1026.2)), restart_s=149.0, measure_s=141.0),
    Trial(number=3, choice=_choice(4, 32, 240), status="failed", code="NO_KV_MEMORY",
          reason="The memory pools do not fit: 3,105 KV tokens are left (mem_fraction_static 0.85)", restart_s=71.0),
    Trial(number=4, choice=_choice(1, 16, 96), status="cut", value=27.4, half=0.8, points=curve(40.2, (1, 40.2)),
          reason="16 streams of at most 41.0 tok/s give 656 tok/s at C=32; the best has 1026 ± 11", restart_s=150.0,
          measure_s=30.0),
)  # fmt: skip
LEFT_OUT = (
    LeftOut(_choice(1, 32, 48), "same", "mtp_steps 1, max_running 9, state_slots 48 stands for it: 9 requests run at "
            "once with either (48 state slots // 5 per request = 9)"),
    LeftOut(_choice(3, 32, 24), "ceiling", "4 running x 3.20 tokens a step / 51.9 ms = 247 tok/s at most (24 state "
            "slots // 5 per request = 4); the best has 393.1 ± 3.9"),
    LeftOut(_choice(4, 48, 240), "memory", "asks for at least as much memory as mtp_steps 4, max_running 32, "
            "state_slots 240, which did not fit (NO_KV_MEMORY)"),
)  # fmt: skip


def tuning(target: str, server_id: str, **changes: object) -> Tuning:
    """In the middle of the search."""
    live = Trial(number=5, choice=_choice(2, 48, 160), status="measuring", points=curve(55.8, (1, 55.8)))
    made = Tuning(
        id="6g2h52-pax",
        server=server_id,
        target=target,
        title="mtp_steps x max_running x state_slots: 36 candidates",
        phase="search",
        axes={"spec_steps": (1, 2, 3, 4), "max_running": (9, 16, 32, 48), "state_slots": (24, 48, 96, 160, 240)},
        size=36,
        waiting=4,
        trials=(*TRIALS, live),
        left_out=LEFT_OUT,
        objective="throughput",
        unit="tok/s",
        restarts=5,
        restarts_limit=12,
        left_s=1740.0,
        front=(2, 1, 0),
        winner=2,
    )
    return msgspec.structs.replace(made, **changes)


REPORT = """# Experiment 6g2h52-pax on gpu1:30000

mtp_steps x max_running: throughput (tok/s); levels 1,8,32. 7 starts, 31 min, ended: done.

## Result

**mtp_steps 2, max_running 32, state_slots 160**: 1026 ± 11 tok/s, +161.1 % against the server as it ran.

- `spec_steps: 3 -> 2`

```
python -m sglang.launch_server --speculative-num-steps 2 --max-running-requests 32
```

## Measured

| a table | that the leaderboard shows |

## What each setting did

- mtp_steps 2 against 3: +1.5 % (-0.2 % to +3.2 %), 1 candidate: no difference shown
"""
