"""Two runs against each other: the verdict, per level both figures, and what changed, the likeliest cause first."""

from __future__ import annotations

from tokpit.domain.run import Run
from tokpit.insight.baseline import Baseline
from tokpit.insight.changes import ALL, PART, differences
from tokpit.insight.comparison import BETTER, WORSE, Pair, change
from tokpit.insight.versus import Versus, versus
from tokpit.ui import figures
from tokpit.ui.compare import level_pairs
from tokpit.ui.text import Row, Span, fit, safe
from tokpit.ui.widgets.levels import hanging
from tokpit.ui.widgets.scrolled import ScrolledPanel

_STYLES = {BETTER: "good", WORSE: "bad"}
_TONES = {"regression": "bad", "mixed": "bad", "improvement": "good"}
_FITS = {ALL: "warn", PART: "warn"}


class ComparePanel(ScrolledPanel):
    """See the module docstring; the older run is the reference."""

    ages = False

    def __init__(self) -> None:
        super().__init__(id="compare")
        self.pair: tuple[Run, Run] | None = None
        self._found: tuple[tuple[Run, Run], Versus] | None = None
        self._noise: tuple[str, Baseline | None] = ("", None)

    def heading(self, width: int) -> tuple[Row, Row]:
        """Which is which: the older one first."""
        if self.pair is None:
            return [("compare", "title")], []
        before, after = self.pair
        return [(safe(before.id), "dim"), (" → ", "dim"), (safe(after.id), "title")], self.place()

    def all_rows(self, width: int) -> list[Row]:
        """Verdict, levels, the other metrics, what changed, and everything else that differs."""
        if self.pair is None:
            return []
        found = self._judged(self.pair)
        said = found.comparison
        rows = hanging("", "fg", safe(said.told), _TONES.get(said.verdict, "bold"), width)
        rows += [[], *self._levels(found, width), []]
        for judged in said.metrics:
            if judged.metric != "output_tps":
                rows += hanging("", "fg", safe(judged.sentence), _STYLES.get(judged.verdict, "dim"), width)
        for caution in said.cautions:
            rows += hanging("! ", "warn", safe(caution), "fg", width)
        return [*rows, [], *self._changes(found, width)]

    def take_noise(self, run_id: str, baseline: Baseline | None) -> None:
        """The noise of the older run's baseline, which is read from the history after the pair is shown."""
        self._noise, self._found = (run_id, baseline), None
        self.redraw()

    def _judged(self, pair: tuple[Run, Run]) -> Versus:
        if self._found is None or self._found[0] != pair:
            known = self._noise[1] if self._noise[0] == pair[0].id else None
            self._found = (pair, versus(*pair, known))
        return self._found[1]

    def _levels(self, found: Versus, width: int) -> list[Row]:
        known = {pair.level: pair for pair in found.comparison.pairs if pair.metric == "output_tps"}
        rows: list[Row] = [[(f"{'C':>4} {'tok/s':>9} {'→':>2} {'tok/s':>8} {'ratio':>7}", "dim")]]
        for pair in level_pairs(found.before, found.after):
            ratio, judged = pair.ratio, known.get(f"C={pair.concurrency}")
            figure = f"{figures.fixed(pair.before):>9} {'→':>2} {figures.fixed(pair.after):>8}"
            said = figures.NA if ratio is None else f"×{ratio:.2f}"
            style = "dim" if judged is None else _STYLES.get(judged.verdict, "fg")
            row: list[Span] = [(f"{pair.concurrency:>4} {figure}", "fg"), (f" {said:>7}", style)]
            if not pair.steady:
                row.append(("  whole run", "dim"))
            if judged is not None and width >= 74:
                row.append((f"  {_within(judged)}", "dim"))
            rows.append(row)
        return rows

    def _changes(self, found: Versus, width: int) -> list[Row]:
        rows: list[Row] = []
        if found.changes:
            rows.append([("what changed, the likeliest explanation first", "title")])
        for number, one in enumerate(found.changes, 1):
            head: list[Span] = [(f"{number:>2} ", "dim"), (f"{safe(one.name)}  ", "fg")]
            head += [(safe(one.before), "bad"), (" → ", "dim"), (safe(one.after), "good")]
            rows.append([*head, (f"  {one.fits}", _FITS.get(one.fits, "dim"))])
            if one.arithmetic:
                rows += hanging("     ", "fg", safe(f"= {one.arithmetic}"), "accent", width)
        told = {one.name for one in found.changes}
        rest = [row for row in differences(found.before, found.after) if row[0].replace("_", " ") not in told]
        if not rest and not found.changes:
            rows.append([("nothing else that was stored differs", "dim")])
        for name, old, new in rest:
            label: Span = (fit(safe(name), 18), "dim")
            if len(old) + len(new) + 24 <= width:
                rows.append([label, (safe(old), "bad"), (" → ", "dim"), (safe(new), "good")])
            else:
                rows.append([label])
                rows += hanging("  - ", "bad", safe(old), "bad", width)
                rows += hanging("  + ", "good", safe(new), "good", width)
        return rows


def _within(pair: Pair) -> str:
    """`-12% to -4%, noise ±5%: worse`."""
    interval = f"{change(pair.interval[0])} to {change(pair.interval[1])}, " if pair.interval is not None else ""
    return f"{interval}noise ±{pair.band:.0%}: {pair.verdict}"
