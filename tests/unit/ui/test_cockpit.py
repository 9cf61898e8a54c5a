from __future__ import annotations

import time

import pytest

from console_feed import HOST, Recorder, fill, gpu, launch, link, server
from console_screen import SIZES, console, rows, shows, text, until
from tokpit.domain.job import BatchJob
from tokpit.domain.records import GpuRecord, HostRecord, LinkState, Problem, Sample, ServersRecord, Stall
from tokpit.transport.base import HostSpec
from tokpit.ui.actions import actions_for
from tokpit.ui.charts.panel import ChartPanel
from tokpit.ui.screens.base import tell
from tokpit.ui.screens.cockpit import grid_for
from tokpit.ui.widgets.tree import HostTree


async def test_every_size_shows_state_figures_hardware_log_and_keys_and_a_larger_one_more_of_the_log() -> None:
    session = Recorder(host_specs={HOST: HostSpec(name=HOST, label="simulated", clock_factor=20)})
    fill(session.store)
    counts = []
    async with console(session, SIZES[0]) as pilot:
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await shows(pilot, "Qwen3.6-27B", "SGLa", "ready", "following")
            await until(pilot, lambda size=size: [len(row) for row in rows(pilot)] == [size[0]] * size[1])  # type: ignore[misc]
            screen = await shows(pilot, "q quit", "412")
            for word in (":30000", "MTP", "run ", "queue ", "state ", "tok/s", "tok/step"):
                assert word in screen, word
            for word in ("RTX PRO 6000", "97%", "89/96G", "412", "71", "168/256G", "retracted 2 requests"):
                assert word in screen, word
            footer = rows(pilot)[-1]
            assert "l launch" in footer
            assert footer.rstrip().endswith("? help  q quit")
            known = {f"{a.key_text} {a.label}" for a in actions_for("cockpit")}
            assert set(footer.strip().split("  ")) <= known, "a label is cut"
            assert "simulated · clock ×20" in rows(pilot)[0]
            counts.append(screen.count("Decode batch"))
    assert counts == sorted(counts)
    assert counts[0] >= 6


async def test_a_console_that_stood_still_says_so_for_a_while() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, (80, 24)) as pilot:
        session.store.apply(Stall(time.time() - 120, 9.0))
        assert "stood still" not in rows(pilot)[0]
        session.store.apply(Stall(time.time(), 5.0))
        await shows(pilot, "tokpit stood still 5")


async def test_charts_have_axes_with_units_of_time_and_value() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, (120, 40)) as pilot:
        screen = await shows(pilot, "generation", "-5m", "now", "100%")
        assert any("500" in row for row in screen.split("\n"))


async def test_a_chart_without_any_figure_takes_no_room() -> None:
    session = Recorder()
    info = server(engine="llamacpp")
    session.store.apply(link())
    session.store.apply(ServersRecord(HOST, time.time(), (info,)))
    session.store.apply(Sample(info.id, time.time(), "metrics", {"gen_tps": 31.5, "running_reqs": 1.0}))
    async with console(session) as pilot:
        screen = await shows(pilot, "31.5 tok/s")
        assert "acceptance" not in screen
        assert "cache use" not in screen


async def test_host_without_a_server_says_so_and_names_the_key() -> None:
    session = Recorder()
    session.store.apply(link())
    session.store.apply(HostRecord(HOST, time.time(), 8 << 30, 4 << 30))
    async with console(session) as pilot:
        await shows(pilot, f"no server found on {HOST}", "press l to launch")


async def test_before_anything_has_come_it_says_that_it_is_looking() -> None:
    session = Recorder()
    session.store.apply(link())
    async with console(session) as pilot:
        await shows(pilot, f"looking for servers on {HOST}")


async def test_a_lost_link_is_shown_with_reason_and_retry_and_figures_turn_stale() -> None:
    session = Recorder()
    fill(session.store, end=time.time() - 60)
    session.store.apply(link(LinkState.LOST, reason="no answer to 3 keepalives", retry_in_s=8.0))
    async with console(session) as pilot:
        screen = await shows(pilot, "link lost", "no answer to 3 keepalives", "retry in 8s", "stale, 1m0")
        assert not any("tok/s" in row[:32] for row in screen.split("\n")), "the tree still shows a live rate"
        panel = pilot.app.screen.query_one("#chart-gen", ChartPanel)
        assert "stale" in {style for _, style in panel.heading(60)[1]}


async def test_figures_that_stopped_coming_turn_stale_on_a_good_link() -> None:
    session = Recorder()
    fill(session.store, end=time.time() - 45)
    async with console(session) as pilot:
        panel = pilot.app.screen.query_one("#chart-gen", ChartPanel)
        _, right = panel.heading(60)
        assert {"stale", "warn"} <= {style for _, style in right}
        assert any("old" in word for word, _ in right)


async def test_gpu_problems_and_throttling_are_said() -> None:
    session = Recorder()
    fill(session.store)
    problem = Problem("GPU_LOST", "GPU 1 has fallen off the bus", 1)
    session.store.apply(GpuRecord(HOST, time.time(), (gpu(throttle=("hw-thermal",)),), (problem,)))
    async with console(session) as pilot:
        await shows(pilot, "hw-thermal", "GPU 1 has fallen", "bus")


async def test_a_host_without_gpu_says_so() -> None:
    session = Recorder()
    fill(session.store)
    session.store.apply(GpuRecord(HOST, time.time()))
    async with console(session) as pilot:
        await shows(pilot, "no NVIDIA GPU")


async def test_gpus_of_a_jobs_server_are_its_nodes_and_never_those_of_the_login_host() -> None:
    session = Recorder()
    fill(session.store)
    job = BatchJob(id="123", state="RUNNING", nodes=("n17", "n18"), time_left_s=6_960.0)
    info = server(pid=0, start_ticks=123, job=job)
    session.store.apply(ServersRecord(HOST, time.time(), (info,)))
    async with console(session) as pilot:
        await shows(pilot, "GPU n17 of 2", "asking the node", "login host")
        problem = Problem("GPU_QUERY_FAILED", "the GPUs of n17 cannot be asked (srun: no; ssh: no)")
        session.store.apply(GpuRecord(HOST, time.time(), (), (problem,), server=info.id, node="n17"))
        await shows(pilot, "the GPUs of n17 cannot be")
        session.store.apply(GpuRecord(HOST, time.time(), (gpu(name="NVIDIA B200"),), server=info.id, node="n17"))
        screen = await shows(pilot, "B200")
        assert "RTX PRO 6000" not in "".join(row[:25] for row in rows(pilot)[len(rows(pilot)) // 2 :])
        assert "login host" in screen
        assert "job 123  on n17 +1  left 1h56m" in rows(pilot)[1]


async def test_a_job_that_waits_says_so_and_why() -> None:
    session = Recorder()
    session.store.apply(link())
    session.store.apply(HostRecord(HOST, time.time(), 1 << 38, 1 << 37))
    job = BatchJob(id="124", state="PENDING", reason="Priority")
    session.store.apply(ServersRecord(HOST, time.time(), (server(pid=0, start_ticks=124, job=job, log_path=None),)))
    async with console(session) as pilot:
        await shows(pilot, "queued", "Priority", "job 124", "the job waits")


async def test_a_rank_says_whose_it_is() -> None:
    session = Recorder()
    session.store.apply(link())
    session.store.apply(HostRecord(HOST, time.time(), 1 << 38, 1 << 37))
    info = server(port=None, group="g", rank=1, ranks=("gpu1", HOST))
    session.store.apply(ServersRecord(HOST, time.time(), (info,)))
    async with console(session) as pilot:
        await shows(pilot, "rank 1 of gpu1", "rank 1 of 2")


async def test_unknown_gpu_figures_are_not_zero() -> None:
    session = Recorder()
    fill(session.store)
    session.store.apply(GpuRecord(HOST, time.time(), (gpu(util=None, mem_used_mib=None, power_w=None, temp_c=None),)))
    async with console(session) as pilot:
        screen = await shows(pilot, "–/96G")
        assert "0%" not in "".join(row[:30] for row in screen.split("\n") if "util" in row)


async def test_a_server_that_has_gone_keeps_its_log_and_says_gone() -> None:
    session = Recorder()
    fill(session.store)
    session.store.apply(ServersRecord(HOST, time.time(), ()))
    async with console(session) as pilot:
        await shows(pilot, "gone", "Decode batch")


async def test_while_its_successor_starts_a_gone_server_is_called_starting() -> None:
    session = Recorder()
    fill(session.store)
    session.store.apply(ServersRecord(HOST, time.time(), ()))
    session.store.apply(launch(op_id="launch-1", steps=3))
    async with console(session) as pilot:
        await shows(pilot, "◐ starting  weights loaded")
        session.store.apply(launch(op_id="launch-1", steps=3, status="failed"))
        await shows(pilot, "✗ gone")


async def test_arrows_in_the_tree_choose_another_server_and_watch_it() -> None:
    session = Recorder()
    first = fill(session.store)
    other = server(pid=5000, port=30_001, served_name="second-model")
    session.store.apply(ServersRecord(HOST, time.time(), (server(), other)))
    async with console(session) as pilot:
        await until(pilot, lambda: first in session.watched)
        assert isinstance(pilot.app.focused, HostTree)
        await pilot.press("down")
        await shows(pilot, "second-model")
        await until(pilot, lambda: f"{HOST}:30001" in rows(pilot)[0])
        assert other.id in session.watched
        await pilot.press("up", "up")
        await until(pilot, lambda: pilot.app.view.server_id is None)  # type: ignore[attr-defined]


async def test_new_figures_reach_the_screen_without_a_key() -> None:
    session = Recorder()
    server_id = fill(session.store)
    async with console(session) as pilot:
        await shows(pilot, "following")
        session.store.apply(Sample(server_id, time.time() + 0.5, "log", {"gen_tps": 123.4}))
        await shows(pilot, "123.4 tok/s")


async def test_resizing_folds_and_unfolds() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, (200, 60)) as pilot:
        await shows(pilot, "acceptance", "╭▸ hosts")
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "╭" not in text(pilot))
        assert "accept" in text(pilot)
        await pilot.resize_terminal(60, 16)
        await shows(pilot, "q quit")


async def test_figures_older_than_the_console_are_kept_when_the_window_is_widened() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session) as pilot:
        await shows(pilot, "-5m")
        await pilot.press("minus")
        await shows(pilot, "-10m")
        await pilot.press("plus", "plus")
        await shows(pilot, "-2m30s")


async def test_large_charts_are_drawn_by_plotext_once_it_is_loaded() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, (200, 60)) as pilot:
        await until(pilot, lambda: pilot.app.plotext_ready)  # type: ignore[attr-defined]
        panel = pilot.app.screen.query_one("#chart-gen", ChartPanel)
        await until(pilot, lambda: panel.canvas(*panel.inner_size()).name == "plotext")
        panel.redraw()
        await shows(pilot, "└┬", "376.5 tok/s")


async def test_on_a_narrow_screen_a_stale_chart_still_says_how_old_it_is() -> None:
    session = Recorder()
    fill(session.store, end=time.time() - 75)
    async with console(session, (80, 24)) as pilot:
        title = next(row for row in (await shows(pilot, "gen", "accept")).split("\n") if " gen " in row)
        assert title.count("1m1") == 2


async def test_in_a_narrow_header_a_fact_is_whole_or_not_there() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, (72, 24)) as pilot:
        await shows(pilot, "ready")
        words = rows(pilot)[1].split("  ")
        assert "context" not in {word.strip() for word in words}, "a label without its figure"
        assert "…" not in rows(pilot)[1]
        assert "cap 9" in rows(pilot)[1]


async def test_a_server_that_has_ended_has_no_live_figure() -> None:
    session = Recorder()
    fill(session.store)
    session.store.apply(ServersRecord(HOST, time.time(), ()))
    async with console(session) as pilot:
        await shows(pilot, "gone")
        for name in ("#chart-gen", "#chart-batch", "#chart-cache"):
            _, right = pilot.app.screen.query_one(name, ChartPanel).heading(60)
            assert "stale" in {style for _, style in right}
            assert any("old" in word for word, _ in right)


async def test_over_a_lost_link_no_server_is_called_ready() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session) as pilot:
        tree = pilot.app.screen.query_one(HostTree)
        await shows(pilot, "● :30000")
        session.store.apply(link(LinkState.LOST, reason="no answer to 3 keepalives"))
        await shows(pilot, "? :30000")
        assert not any(word.startswith("●") for row in tree.body(30, 9) for word, _ in row)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_age_of_stale_figures_is_never_cut(size: tuple[int, int]) -> None:
    session = Recorder()
    server_id = fill(session.store, end=time.time() - 90)
    shares = {"swa_usage": 0.31, "host_cache_usage": 0.62, "host_state_usage": 0.12}
    session.store.apply(Sample(server_id, time.time() - 90, "metrics", shares))
    async with console(session, size) as pilot:
        await shows(pilot, "cache")
        panel = pilot.app.screen.query_one("#chart-cache", ChartPanel)
        title = panel.rows()[0]
        assert any(word.strip().startswith("1m3") and style == "warn" for word, style in title)
        assert not any("…" in word for word, _ in title)
        if size[0] > 80:
            assert any(word.strip() == "94%" for word, _ in title), "the fullest share is the one to know"
        assert any(word.strip().startswith("+") for word, _ in title), "nothing says that figures were left out"


async def test_where_there_is_room_every_chart_that_has_figures_is_there() -> None:
    session = Recorder()
    server_id = fill(session.store)
    more = {"prompt_tps": 900.0, "ttft_p50_s": 0.3, "ttft_p99_s": 1.2, "prefix_hit_rate": 0.4, "itl_p50_s": 0.02}
    session.store.apply(Sample(server_id, time.time(), "metrics", more))
    async with console(session, (120, 40)) as pilot:
        await shows(pilot, "ITL", "TTFT", "prefill", "prefix", "Decode batch")


@pytest.mark.parametrize(("width", "rows_", "count", "wanted"), [
    (55, 21, 8, (2, 2)), (88, 37, 4, (2, 2)), (88, 37, 8, (3, 3)), (162, 47, 4, (2, 2)), (162, 47, 6, (3, 2)),
    (162, 47, 8, (4, 2)), (35, 15, 8, (1, 1)), (252, 77, 8, (4, 2)), (162, 47, 2, (2, 1)), (162, 47, 3, (3, 1)),
])  # fmt: skip
def test_charts_share_the_room(width: int, rows_: int, count: int, wanted: tuple[int, int]) -> None:
    assert grid_for(width, rows_, count) == wanted


async def test_why_there_is_no_link_can_be_read_to_its_end() -> None:
    session = Recorder()
    reason = "Permission denied for user ops on host gpu-rack-7 (tried publickey, keyboard-interactive); see ssh -v"
    session.store.apply(link(LinkState.FAILED, reason=reason, retry_in_s=30.0))
    async with console(session, (80, 24)) as pilot:
        await shows(pilot, "no link to", "keyboard-interactive)", "see ssh -v", "retry in 30s", "r tries now")


async def test_at_a_held_moment_nothing_is_said_to_be_looked_for() -> None:
    session = Recorder()
    fill(session.store, end=time.time() - 2)
    async with console(session) as pilot:
        await shows(pilot, "following")
        await pilot.press("space", "left_square_bracket", "left_square_bracket")
        shown = await shows(pilot, "HELD", "not known then")
        assert "looking" not in shown


async def test_a_narrow_log_gives_the_day_away_and_keeps_what_the_line_says() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, (80, 24)) as pilot:
        shown = await shows(pilot, "Decode batch, #running-req: 9")
        assert time.strftime("%Y-") not in shown
        await pilot.resize_terminal(200, 50)
        await shows(pilot, time.strftime("[%Y-", time.gmtime()))


async def test_the_footer_leads_with_what_enter_and_escape_do_just_now() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, (80, 24)) as pilot:
        await shows(pilot, "following")
        await pilot.press("slash")
        await until(pilot, lambda: rows(pilot)[-1].startswith(" enter search  esc close"))
        assert "launch" not in rows(pilot)[-1], "letters are typed"
        await pilot.press("escape", "z")
        await until(pilot, lambda: rows(pilot)[-1].startswith(" esc all panels"))
        await pilot.press("escape")
        await until(pilot, lambda: rows(pilot)[-1].startswith(" l launch"))
        await pilot.press("space")
        await until(pilot, lambda: rows(pilot)[-1].startswith(" esc back to now"))
        await pilot.click("#footer", offset=(2, 0))
        await until(pilot, lambda: rows(pilot)[-1].startswith(" l launch"))


async def test_a_bad_notice_has_a_sign_besides_its_colour() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, (80, 24)) as pilot:
        await shows(pilot, "following")
        tell(pilot.app, "the server did not answer", bad=True)  # type: ignore[arg-type]  # the console
        await shows(pilot, "✗ the server did not answer")
