from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokpit.ui import figures
from tokpit.ui.charts.braille import BrailleCanvas, tick_rows
from tokpit.ui.charts.model import Chart, ChartCanvas, Curve, nice_top, thin, time_ticks, with_gaps, y_ticks
from tokpit.ui.charts.panel import apart
from tokpit.ui.charts.plotext_canvas import PlotextCanvas
from tokpit.ui.text import crop, crop_row, fit, fitting, row_width, safe, two_sided, width_of, wrap, wrap_row
from tokpit.ui.widgets.panel import lines_text

CANVASES = (BrailleCanvas, PlotextCanvas)


def chart(ys: list[float], *, high: float = 400.0, marks: tuple[float, ...] = ()) -> Chart:
    xs = [float(n) for n in range(len(ys))]
    end = max(1.0, xs[-1] if xs else 1.0)
    return Chart(
        (Curve("a", "series-1", xs, ys),),
        (0.0, end),
        (0.0, high),
        ((0.0, "-5m"), (end, "now")),
        ((0.0, "0"), (high / 2, f"{high / 2:g}"), (high, f"{high:g}")),
        marks,
    )


def dots(rows: list[str]) -> list[tuple[int, int]]:
    return [(y, x) for y, row in enumerate(rows) for x, char in enumerate(row) if 0x2800 < ord(char) <= 0x28FF]


@pytest.mark.parametrize("canvas", CANVASES)
@pytest.mark.parametrize("size", [(24, 6), (43, 9), (80, 20), (160, 28)])
def test_both_engines_draw_exactly_the_room_with_axes_and_labels(
    canvas: type[ChartCanvas], size: tuple[int, int]
) -> None:
    rows = canvas().draw(chart([200.0 + 100 * math.sin(n / 9) for n in range(300)]), *size)
    assert len(rows) == size[1]
    assert all(row_width(row) <= size[0] for row in rows)
    lines = lines_text(rows)
    joined = "\n".join(lines)
    for label in ("400", "200", "0", "-5m", "now"):
        assert label in joined
    assert len(dots(lines)) >= size[0] // 2


@pytest.mark.parametrize("canvas", CANVASES)
def test_higher_values_are_drawn_higher(canvas: type[ChartCanvas]) -> None:
    low = min(y for y, _ in dots(lines_text(canvas().draw(chart([50.0] * 50), 60, 12))))
    high = min(y for y, _ in dots(lines_text(canvas().draw(chart([350.0] * 50), 60, 12))))
    assert high < low


@pytest.mark.parametrize("canvas", CANVASES)
def test_a_mark_is_drawn_in_its_own_style(canvas: type[ChartCanvas]) -> None:
    rows = canvas().draw(chart([100.0] * 60, marks=(30.0,)), 60, 12)
    assert "mark" in {style for row in rows for _, style in row}


@pytest.mark.parametrize("canvas", CANVASES)
def test_curves_keep_the_style_they_were_given(canvas: type[ChartCanvas]) -> None:
    two = Chart(
        (Curve("a", "series-1", [0, 9], [10, 10]), Curve("b", "series-2", [0, 9], [30, 30])),
        (0, 9),
        (0, 40),
        (),
        ((0, "0"),),
    )
    styles = {style for row in canvas().draw(two, 50, 10) for word, style in row if dots([word])}
    assert styles == {"series-1", "series-2"}


@pytest.mark.parametrize("canvas", CANVASES)
def test_a_gap_is_not_bridged(canvas: type[ChartCanvas]) -> None:
    ys = [100.0] * 20 + [math.nan] * 60 + [100.0] * 20
    columns = {x for _, x in dots(lines_text(canvas().draw(chart(ys), 80, 10)))}
    assert columns
    assert not columns & set(range(30, 60))


@pytest.mark.parametrize("canvas", CANVASES)
def test_two_figures_of_the_same_engine_do_not_share_anything(canvas: type[ChartCanvas]) -> None:
    first, second = canvas(), canvas()
    alone = lines_text(first.draw(chart([100.0] * 30), 60, 10))
    second.draw(chart([300.0] * 30, high=4000.0), 100, 20)
    assert lines_text(first.draw(chart([100.0] * 30), 60, 10)) == alone


@pytest.mark.parametrize("canvas", CANVASES)
@settings(deadline=None, max_examples=40)
@given(
    ys=st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), max_size=40),
    width=st.integers(0, 90),
    height=st.integers(0, 20),
)
def test_no_data_and_no_size_break_an_engine(
    canvas: type[ChartCanvas], ys: list[float], width: int, height: int
) -> None:
    rows = canvas().draw(chart(ys), width, height)
    assert len(rows) == height


@given(st.floats(0.001, 1e9))
def test_the_top_of_an_axis_is_round_and_close(value: float) -> None:
    top = nice_top(value, floor=0.001)
    assert value <= top * (1 + 1e-9)
    assert top <= value * 1.7


def test_thinning_keeps_every_peak_and_every_gap() -> None:
    xs = [float(n) for n in range(1000)]
    ys = [10.0] * 1000
    ys[333], ys[700] = 99.0, math.nan
    thin_x, thin_y = thin(xs, ys, 0.0, 999.0, 40)
    assert len(thin_x) <= 3 * 41
    assert 99.0 in thin_y
    assert any(y != y for y in thin_y)
    assert thin_x == sorted(thin_x)


def test_silence_becomes_a_gap() -> None:
    xs, ys = with_gaps([0, 1, 2, 30, 31], [5, 5, 5, 5, 5], 8)
    assert [x for x, y in zip(xs, ys, strict=True) if y != y] == [16]


@pytest.mark.parametrize("rows", range(2, 40))
def test_each_label_of_an_axis_stands_in_the_row_of_its_value(rows: int) -> None:
    ticks = y_ticks(0.0, 100.0, rows, lambda value: f"{value:g}")
    placed = tick_rows(ticks, (0.0, 100.0), rows)
    assert len(placed) == len(ticks) >= (3 if rows >= 7 else 2)
    for row, label in placed.items():
        stands = 100.0 * (rows - 1 - row) / (rows - 1)
        assert abs(stands - float(label)) < 9, (row, label)


def test_ticks_say_time_back_from_now() -> None:
    assert [label for _, label in time_ticks(1000.0, 300.0, 80)] == ["-5m", "-3m45s", "-2m30s", "-1m15s", "now"]
    assert [label for _, label in time_ticks(1000.0, 60.0, 20)] == ["-1m", "now"]
    assert [label for _, label in y_ticks(0, 1, 8, lambda v: figures.tick(v, "fraction"))] == ["0%", "50%", "100%"]
    assert [figures.tick(v, "s") for v in (0, 0.03, 0.5, 2.5)] == ["0", "30ms", "500ms", "2.5s"]


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [(None, "tok/s", "–"), (376.52, "tok/s", "376.5 tok/s"), (0.213, "fraction", "21%"), (0.0052, "fraction", "0.5%"),
     (0.31, "s", "310 ms"), (12.34, "s", "12.3 s"), (9.0, "req", "9 req"), (0.0, "tok/s", "0 tok/s"),
     (12345.6, "tok", "12 346 tok")],
)  # fmt: skip
def test_quantities_are_said_with_their_unit(value: float | None, unit: str, said: str) -> None:
    assert figures.quantity(value, unit) == said


def test_an_unknown_share_is_an_empty_gauge_not_a_zero_one() -> None:
    assert figures.bar(None, 5) == ("", "·····")
    assert figures.bar(0.0, 5) == ("", "─────")
    assert figures.bar(1.0, 5) == ("█████", "")


@given(st.text(st.sampled_from("ab ~é漢字ｗ…😀\u0301\u200d\ufe0f👩"), max_size=40), st.integers(1, 30))
def test_cropping_and_padding_never_miss_the_width(words: str, width: int) -> None:
    words = safe(words)
    assert width_of(crop(words, width)) <= width
    assert width_of(fit(words, width)) == width


def test_two_sides_never_touch_and_nothing_is_cut_without_a_sign() -> None:
    row = two_sided([("a long name", "fg")], [("12 tok/s", "dim")], 16)
    assert "".join(text for text, _ in row) == "a long… 12 tok/s"
    assert crop_row([("context ", "dim"), ("131072", "fg")], 8) == [("context…", "dim")]
    assert crop_row([("whole", "fg"), (" ", "fg")], 5) == [("whole", "fg")]


def test_half_a_figure_is_left_out() -> None:
    parts = [[("KV ", "dim"), ("21%", "fg")], [("host states ", "dim"), ("10%", "fg")], [("SWA ", "dim"), ("3%", "fg")]]
    row, left_out = fitting(parts, 16)
    assert "".join(text for text, _ in row) == "KV 21%  SWA 3%"
    assert left_out == 1


@given(st.lists(st.text("ab é漢 ", max_size=30), max_size=4), st.integers(8, 40))
def test_a_sentence_of_several_styles_wraps_and_loses_no_word(texts: list[str], width: int) -> None:
    row = [(safe(text), str(n)) for n, text in enumerate(texts)]
    lines = wrap_row(row, width)
    assert all(row_width(line) <= width for line in lines)
    said = "".join(text for line in lines for text, _ in line)
    assert said.replace(" ", "") == "".join(text for text, _ in row).replace(" ", "")


def test_wrapping_cuts_at_spaces_and_long_words_anywhere() -> None:
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("漢" * 7 + " ab", 9) == ["漢" * 4, "漢漢漢 ab"]
    assert wrap("a " + "x" * 12, 6, indent="  ") == ["a", "  xxxx", "  xxxx", "  xxxx"]
    assert all(len(line) <= 5 for line in wrap("abcdefghijklmno x", 5))


def test_marks_of_one_kind_that_lie_together_are_drawn_once_and_others_stay() -> None:
    marks = [("retraction", 10.0), ("retraction", 11.0), ("sweep", 11.5), ("retraction", 14.0), ("retraction", 20.0)]
    assert apart(marks, 5.0) == (10.0, 11.5, 20.0)
    assert apart(list(reversed(marks)), 0.0) == (10.0, 11.0, 11.5, 14.0, 20.0)
