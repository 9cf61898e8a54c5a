"""llama-server's start in order, as its log tells it. It answers 503 on its port while it loads."""

from __future__ import annotations

from tokpit.engines.base import Milestone

MILESTONES: tuple[Milestone, ...] = (
    Milestone(
        kind="milestone.version",
        label="program started",
        phase="starting",
        usual_s=20,
        stuck_hint="the GPU driver is slow to initialise",
    ),
    Milestone(
        kind="milestone.http_up",
        label="HTTP up, loading",
        phase="loading",
        usual_s=120,
        stuck_hint="the model file comes from a slow or network disk, or is downloaded",
    ),
    Milestone(
        kind="milestone.load_begin",
        label="loading weights",
        phase="loading",
        usual_s=180,
        stuck_hint="the model file comes from a slow or network disk, or does not fit into memory and is paged",
    ),
    Milestone(
        kind="milestone.slots",
        label="slots initialised",
        phase="loading",
        usual_s=60,
        stuck_hint="the warm-up run is slow: layers left on the CPU, or more threads than free cores",
    ),
    Milestone(
        kind="milestone.loaded",
        label="model loaded",
        phase="loading",
        usual_s=60,
        stuck_hint="the chat template is prepared",
    ),
    Milestone(
        kind="milestone.ready",
        label="ready by its log",
        phase="ready",
        usual_s=0,
        stuck_hint="only an answered request proves it",
    ),
)
