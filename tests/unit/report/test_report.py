from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from browser import browser, chromium
from insight_logs import decode
from run_tools import measured, stored, sweep_of
from tokpit.cli.context import Options
from tokpit.cli.main import tokpit
from tokpit.domain.run import Run
from tokpit.errors import StoreError, UsageError
from tokpit.insight.versus import versus
from tokpit.ops.records.report import document_of, write
from tokpit.ops.sweep.advice import findings_of
from tokpit.ops.sweep.advice import stored as as_stored
from tokpit.report import FORMATS
from tokpit.report.document import Chart, Curve
from tokpit.report.svg import svg
from tokpit.report.versus import versus_document

_HOSTILE = "<script>alert(1)</script> | `x` api_key=abcdefghijklmnop1234 </title>"


def run_with_everything() -> Run:
    levels = [measured(c, tps) for c, tps in ((1, 60), (4, 200), (8, 355), (16, 390), (32, 395))]
    check = {"code": "SHORT", "ok": False, "sentence": _HOSTILE, "distrust": ["ttft_s"]}
    levels[4] = msgspec.structs.replace(levels[4], result={**levels[4].result, "checks": [check]})
    run = stored("6g2gxz-p6d", levels, settings={"state_slots": 48, "tp": 1}, facts={"max_running_requests": 9},
                 gpus=["NVIDIA RTX PRO 6000 Blackwell"], command="serve --api-key sk-abcdefghijklmnop1234",
                 baseline="Against run x: No change beyond the noise.")  # fmt: skip
    run = msgspec.structs.replace(run, note=_HOSTILE)
    run.context["findings"] = as_stored(findings_of(run))
    return run


def cli(*words: object) -> Result:
    return CliRunner().invoke(tokpit, list(map(str, words)), obj=Options(), standalone_mode=False)


def test_every_format_has_levels_findings_and_context_and_no_secret() -> None:
    document = document_of(run_with_everything())
    for name, render in FORMATS.items():
        text = render(document)
        assert "abcdefghijklmnop1234" not in text, name
        assert "355" in text, name
        if name in ("md", "html"):
            assert "QUEUE_LIMITED" in text, name
            assert "RTX PRO 6000" in text, name
            assert "cap" in text, name


def test_csv_is_a_row_a_level_and_no_formula() -> None:
    run = stored("=1+2", [measured(1, 60), measured(8, 355)])
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](document_of(run)))))
    assert [row["level"] for row in rows] == ["C=1", "C=8"]
    assert float(rows[1]["steady_tps"]) == 355
    assert float(rows[0]["ttft_p50_s"]) == pytest.approx(0.2, rel=0.1)
    assert rows[0]["run"] == "'=1+2"


def test_json_reads_back_as_the_run() -> None:
    run = sweep_of("6g2g-abc")
    assert msgspec.json.decode(FORMATS["json"](document_of(run)), type=Run).levels[2].steady_tps == 355


def test_markdown_keeps_what_a_server_printed_as_text() -> None:
    text = FORMATS["md"](document_of(run_with_everything()))
    assert "\\<script\\>" in text
    assert "<script>" not in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert tables
    assert all(len(re.findall(r"(?<!\\)\|", line)) >= 3 for line in tables)


def test_charts_are_well_formed_and_draw_every_point() -> None:
    chart = Chart(title="a <b> & c", unit="tok/s", x_label="concurrency", marks=[(9.0, "cap 9")],
                  curves=[Curve("x", [1, 4, 8, 48], [60, 200, 350, 400], [1, None, 5, 20]),
                          Curve("y", [1, 8], [50, 300], (), True)])  # fmt: skip
    root = ET.fromstring(svg(chart))
    assert root.get("role") == "img"
    dots = root.findall("circle")
    assert len(dots) == 6
    at = [float(dot.get("cx", "0")) for dot in dots[:4]]
    assert at == sorted(at)
    assert min(at) > 50
    assert max(at) < 470
    assert any("cap 9" in (text.text or "") for text in root.findall("text"))
    assert svg(Chart(title="", unit="", x_label="", curves=[Curve("x", [], [])])) == ""


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write("one", tmp_path / "r.md")
    assert (tmp_path / "r.md").read_text() == "one"
    with pytest.raises(StoreError, match="cannot be written"):
        write("two", tmp_path / "nowhere" / "r.md")
    assert [path.name for path in tmp_path.iterdir()] == ["r.md"]


def test_an_incident_is_kept_and_reported(tmp_path: Path) -> None:
    where = ("--history", tmp_path / "h.sqlite")
    (tmp_path / "a.log").write_text("\n".join(decode(5 * i, 2, 33, spec=(1.0, 0.0)) for i in range(40)))
    kept = cli(*where, "diagnose", "--log", tmp_path / "a.log", "--save")
    name = re.search(r"kept as (\S+);", kept.output)
    assert name is not None
    done = cli(*where, "report", name[1], "-o", tmp_path / "i.html")
    assert done.exception is None
    page = (tmp_path / "i.html").read_text()
    assert "DRAFT_DEAD" in page
    assert page.count("<svg") == 4
    rows = list(csv.DictReader(io.StringIO(cli(*where, "report", name[1], "-f", "csv").stdout)))
    assert rows[0]["code"] == "DRAFT_DEAD"


def test_a_table_alone_makes_a_report_without_a_history(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("concurrency,output_tps\n1,60\n4,200\n")
    assert "| C=4 |" in cli("report", tmp_path / "s.csv").stdout
    other = cli("report", tmp_path / "s.csv", "-o", tmp_path / "r.pdf")
    assert isinstance(other.exception, UsageError)
    assert "pdf" in other.exception.message


def test_the_newest_sweep_has_a_name(tmp_path: Path) -> None:
    missing = cli("--history", tmp_path / "h.sqlite", "report", "sweep")
    assert isinstance(missing.exception, UsageError)
    assert "no sweep is stored" in missing.exception.message


@pytest.mark.skipif(chromium() is None, reason="no Chromium is installed")
async def test_html_in_a_browser_shows_charts_fetches_nothing_and_fits_a_phone(tmp_path: Path) -> None:
    pages = {
        "run.html": document_of(run_with_everything()),
        "versus.html": versus_document([versus(sweep_of("a"), sweep_of("b", 0.8, seed=2))]),
    }
    for name, document in pages.items():
        (tmp_path / name).write_text(FORMATS["html"](document))
    async with browser(chromium() or "") as page:
        for name in pages:
            colours = set()
            for width, dark in ((1200, False), (1200, True), (390, False)):
                await page.open(tmp_path / name, width=width, dark=dark)
                charts = (
                    "[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().height > 100).length"
                )
                assert await page.value(charts) == 4
                assert await page.value("document.querySelectorAll('svg circle').length") > 12
                assert await page.value("document.documentElement.scrollWidth") <= width
                assert await page.value("document.scripts.length") == 0
                colours.add(await page.value("getComputedStyle(document.body).backgroundColor"))
            assert len(colours) == 2, "light and dark differ"
    assert page.console == []
    assert {url.partition("?")[0] for url in page.requests} == {(tmp_path / name).as_uri() for name in pages}


def test_reports_in_json_of_a_comparison_carry_the_verdict() -> None:
    data = json.loads(FORMATS["json"](versus_document([versus(sweep_of("a"), sweep_of("b", 0.8, seed=2))])))
    assert data[0]["comparison"]["verdict"] == "regression"
