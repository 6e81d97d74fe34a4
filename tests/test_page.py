"""The HTML report in a real browser: nothing fails or is fetched, and what moves does move; and what its text holds and escapes."""

import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from example import CACHES, bandwidth, bracket, fma, launch, measurement
from shown import contrast, eventually, luminance

from roofline import Attention, Error, Machine, Matmul, Softmax, place
from roofline.cli import main
from roofline.machine import KernelTime
from roofline.operators import Operator, from_dict
from roofline.report import html
from roofline.report.page.contents import SORTED, _maps
from roofline.report.tables import operator_table
from roofline.results import Measurement, Results, append_to

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("plotly", reason="the HTML report needs plotly")

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> {{7*7}} %{x} 'q' \"r\" \u202egnp"
DRAM, L1, FMA, LAUNCH = 50e9, 1e12, 500e9, 1e-6
READ = {"operator": "stream", "access": "read"}


def machine(name: str = "Example CPU") -> Machine:
    ceilings = (
        bandwidth((DRAM,) * 9, problem=READ), bandwidth((40e9,) * 5 + (20e9,) * 5, "copy"), bandwidth((L1,) * 9, level="L1"),
        fma((FMA,) * 9, isa="avx512"), fma((FMA / 2,) * 9, isa="avx2"), launch((LAUNCH,) * 9),
    )  # fmt: skip
    facts = {**CACHES, "memory_bytes": 1 << 34}
    run = {"began_utc": "2026-11-24T06:00:00+00:00", "took_s": 50.6, "time_limit_s": 55.0, "seed": 3}
    provenance = {"versions": {"roofline": "0.1.0", "python": "3.11"}, "os": name, "report": run}
    kernels = tuple(
        KernelTime(problem={"operator": "softmax", "dtype": dtype}, variant="fused", cold=True, threads=2,
                   samples_s=(Softmax(dtype=dtype).compulsory_bytes() / rate,), launch_s=LAUNCH, memory_s=2e-3, rest_s=1e-3)
        for dtype, rate in (("fp32", 45e9), ("bf16", 20e9))
    )  # fmt: skip
    return Machine(
        name=name, device="cpu", facts=facts, ceilings=ceilings, kernels=kernels, provenance=provenance, created_utc="2026-11-24"
    )


def measured(problem: Operator, slowness: float, variant: str, **more: Any) -> Measurement:
    roof_s = max(problem.total_flops() / FMA, problem.compulsory_bytes() / DRAM, LAUNCH)
    brackets = (bracket((DRAM,) * 3, problem=READ), bracket((FMA,) * 3, "fp32", kind="compute"))
    stated = {"variant": variant, "brackets": brackets, "prediction": {"time_s": roof_s, "bound": "compute"}}
    return measurement(problem, (roof_s * slowness,) * 7, **{**stated, **more})


def results() -> Results:
    swept = [
        measured(Attention(batch=batch, seq_q=length, seq_kv=length), 1 + batch / 10, "tiled")
        for batch in (1, 2, 4)
        for length in (256, 1024)
    ]
    product = Matmul(rows=512, columns=512, inner=512)
    climb = [measured(product, slowness, name) for name, slowness in (("naive", 40), ("tiled", 2), ("library", 1.1))]
    moved = measured(Softmax(), 2.0, "fused", status="roof_moved", reason=f"moved by 9 % {HOSTILE}")
    failed = measured(Softmax(rows=7), 2.0, "fused", samples_s=(), brackets=(), prediction={}, status="failed", reason="why")
    return Results((*swept, *climb, moved, failed))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return html(machine(HOSTILE), results(), tmp_path_factory.mktemp("page") / "report.html")


class Read(HTMLParser):
    """Tags with their attributes, and the text of everything that is no script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] not in ("script", "style"):
            self.words.append(data)


# -- the text -----------------------------------------------------------------------------------------------------------------


def test_one_file_that_asks_for_nothing(page: Path) -> None:
    assert page.stat().st_size < 5e6
    read = Read(page.read_text())
    links = [value for tag, attributes in read.tags for name, value in attributes.items() if name in ("src", "href")]
    assert links and all((value or "").startswith(("#", "data:,")) for value in links)
    policy = next(a["content"] for t, a in read.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in (policy or "")


def test_names_are_text(page: Path) -> None:
    read = Read(page.read_text())
    assert [tag for tag, _ in read.tags].count("script") == 3
    assert not [tag for tag, attributes in read.tags if tag == "img" or any(name.startswith("on") for name in attributes)]
    words = "".join(read.words)
    assert HOSTILE.replace("\u202e", "\\u202e") in words  # shown as it is, but for what turns the direction of text
    assert "\u202e" not in page.read_text()


def test_every_section_says_what_was_measured(page: Path) -> None:
    words = " ".join("".join(Read(page.read_text()).words).split())
    for said in (
        "DRAM read 50.0 GB/s", "40.0 GB/s (50 %) or 20.0 GB/s (50 %)", "L1 32 KiB", "seed 3", "roof moved: softmax",
        "attention tiled fp32, cold: seq_kv down, batch across",
        "roofline report --device cpu --threads 2 --time-limit 55.0 --seed 3 --html", "variant library", "matmul: M=512",
        "36.4× of the slowest", "a multiply-add is two",
    ):  # fmt: skip
        assert said.lower() in words.lower(), said


def test_the_same_data_give_the_same_page(page: Path, tmp_path: Path) -> None:
    again = html(machine(HOSTILE), results(), tmp_path / "again.html")
    assert again.read_bytes() == page.read_bytes()
    html(machine(), [], again)  # replaces a page of ours
    assert "None was measured" in again.read_text()


def test_no_other_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "mine.html"
    file.write_text("<p>mine</p>")
    with pytest.raises(Error, match="does not write such files"):
        html(machine(), [], file)
    assert html(machine(), [], file, force=True) == file


def test_a_machine_without_ceilings(tmp_path: Path) -> None:
    text = html(Machine(name="bare", device="cpu"), [], tmp_path / "bare.html").read_text()
    assert "no ceilings to draw" in text


def test_columns_that_sort_by_number_are_there() -> None:
    assert set(SORTED) <= set(operator_table(results(), None).headers)


def test_map_axes_shares_and_gaps() -> None:
    (found,) = _maps(list(results()[:5]))
    assert (found["down"], found["across"]) == ("seq_kv", "batch")
    shares = [cell and cell["texts"][0] for _, cells in found["rows"] for cell in cells]
    assert shares == ["91 %", "83 %", "71 %", "91 %", "83 %", None]
    assert _maps(list(results()[6:])) == []


def test_an_extra_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any) -> None:
    monkeypatch.setattr("roofline.report.page.find_spec", lambda name: None if name == "plotly" else name)
    with pytest.raises(Error, match=re.escape("pip install 'roofline[html]'")):
        html(machine(), [], tmp_path / "page.html")
    machine().save(tmp_path / "machine.json")
    assert "needs plotly" in cli.refused(["report", "--from", str(tmp_path), "--html"])
    assert not (tmp_path / "report.html").exists()


def test_the_command_writes_it_from_saved_files(tmp_path: Path, cli: Any) -> None:
    machine().save(tmp_path / "machine.json")
    for m in results()[6:]:
        append_to(tmp_path / "results.jsonl", m)
    for m in results()[:6]:
        append_to(tmp_path / "sweep.jsonl", m)
    command = ["report", "--from", str(tmp_path), "--no-plot"]
    assert "report.html" in cli.out([*command, "--html", "--sweep", str(tmp_path / "sweep.jsonl")])
    text = (tmp_path / "report.html").read_text()
    assert 'class="map"' in text and "attention" not in (tmp_path / "report.md").read_text().partition("Counting rules")[0]
    assert main([*command, "--sweep", str(tmp_path / "sweep.jsonl")]) == 2
    assert main(["report", "--html", "--sweep", str(tmp_path / "sweep.jsonl")]) == 2


def test_a_measured_report_has_a_page(tmp_path: Path, small_probes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from roofline.measurement import Policy
    from roofline.report import Point, report

    point = Point(problem=Softmax(rows=8, columns=64), variant="fused", cache_state="cold")
    monkeypatch.setattr("roofline.report.measuring.default_points", lambda *facts, **how: [point])
    policy = Policy(min_s=1e-4, max_s=1e-3, warmup_min_s=0, warmup_max_s=1e-4, bracket_s=1e-4, tries=1, min_samples=3)
    made = report(tmp_path, machine=machine(), plot=False, html=True, policy=policy)
    assert tmp_path / "report.html" in made.files
    assert json.loads(re.search(r'id="data">(.*?)</script>', (tmp_path / "report.html").read_text())[1])["ceilings"]  # type: ignore[index]


# -- in a browser -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Callable[..., Any]]:
    """Runs a script in the page, and hands back what it returns."""
    show(browser, 1400)
    browser.get(page.as_uri())
    eventually(browser, "return document.documentElement.dataset.ready")
    yield browser.execute_script
    assert browser.get_log("browser") == []  # no message of the console


def show(browser: Any, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def anchors(script: Callable[..., Any]) -> list[float]:
    found: list[float] = script("return document.querySelector('#chart').data.find(t => t.meta === 'anchors').y")
    return [value for value in found if value is not None][1::2]


def test_points_stand_under_the_ceilings_that_bound_them(opened: Callable[..., Any]) -> None:
    paper = Machine.from_peaks("paper", DRAM, fp32=FMA, launch_s=LAUNCH)
    timed = [m for m in results() if m.time_s is not None]
    expected = [place(from_dict(m.operator, m.problem), paper).attainable_flops_per_s for m in timed]
    assert sorted(anchors(opened)) == pytest.approx(sorted(expected))
    found = "[...document.querySelectorAll('#toggles label')].filter(e => e.textContent.includes(arguments[0]))"
    toggle = f"{found}.forEach(e => e.click())"
    opened(toggle, "avx512")  # off: the other instruction set is off too, so that memory is left
    memory = [min(DRAM * m.total_flops / m.total_bytes, m.total_flops / LAUNCH) for m in timed]
    assert sorted(anchors(opened)) == pytest.approx(sorted(memory))
    opened(toggle, "avx2")
    assert max(anchors(opened)) == pytest.approx(FMA / 2)
    assert "fp32 avx2" in opened("return document.querySelector('#bounds').textContent")


def test_what_runs_alone_has_no_launch_on_the_page_either(browser: Any, tmp_path: Path) -> None:
    """The smaller of two floors of a launch counts; a point that the calling thread ran alone has none. Both as in Python."""
    small = Softmax(rows=8, columns=64)  # 4 KiB: 82 ns of memory, 1 us of launch
    around = (bracket((DRAM,) * 3, problem=READ), bracket((LAUNCH,) * 3, "fork-join", kind="latency"))
    swept = [
        measured(small, 2.0, "fused", brackets=around, prediction={"time_s": LAUNCH, "bound": "launch", "parts": {"launch": floor}})
        for floor in (LAUNCH, 0.0)
    ]
    ceilings = (bandwidth((DRAM,) * 9, problem=READ), launch((3 * LAUNCH,) * 9, variant="queued"), launch((LAUNCH,) * 9))
    page = html(Machine(name="Example CPU", device="cpu", facts=CACHES, ceilings=ceilings), Results(swept), tmp_path / "page.html")
    browser.get(page.as_uri())
    eventually(browser, "return document.documentElement.dataset.ready")
    expected = [m.total_flops / (m.attainable_s or 0.0) for m in swept]
    assert expected == pytest.approx([small.total_flops() / LAUNCH, DRAM * small.total_flops() / small.compulsory_bytes()])
    assert sorted(anchors(browser.execute_script)) == pytest.approx(sorted(expected))


def test_hover_says_what_a_point_is(browser: Any, opened: Callable[..., Any]) -> None:
    from selenium.webdriver import ActionChains

    points = browser.find_elements("css selector", "#chart .scatterlayer .points path.point")
    assert len(points) == sum(m.time_s is not None for m in results())
    opened("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", points[0])
    ActionChains(browser).move_to_element(points[0]).perform()
    lines = opened("return [...document.querySelectorAll('#chart .hoverlayer tspan')].map(e => e.textContent).join('; ')")
    for word in (
        "matmul library", "M=512 N=512", "fp32", "intensity 85.3 FLOP/byte", "rate 455 GFLOP/s", "90.9 % of its bracket",
        "bound by compute", "7 samples", "90.9 % of fp32 avx512",
    ):  # fmt: skip
        assert word in lines, (word, lines)


SET = """const e = document.querySelector(arguments[0]);
    e.value = arguments[1];
    e.dispatchEvent(new Event(arguments[2], {bubbles: true}))"""


def test_sort_and_filter(opened: Callable[..., Any]) -> None:
    def column(index: int) -> list[str]:
        shown = "[...document.querySelectorAll('#table tbody tr:not([hidden])')].map(r => r.cells[arguments[0]])"
        found: list[str] = opened(f"return {shown}.map(cell => cell.dataset.key ?? cell.textContent)", index)
        return found

    click = "document.querySelectorAll('#table th button')[arguments[0]].click()"
    assert len(column(4)) == len(results())
    opened(click, 4)
    times = [float(key) for key in column(4)]
    assert times == sorted(times) and times[-1] == pytest.approx(max(m.time_s or 0 for m in results()))
    opened(click, 4)
    assert [float(key) for key in column(4)] == times[::-1]
    assert opened("return document.querySelectorAll('#table th')[4].ariaSort") == "descending"
    opened(SET, "#words", "MATMUL tiled", "input")
    assert column(0) == ["matmul"]
    assert opened("return document.querySelector('#count').textContent") == f"1 of {len(results())}"
    assert opened("return document.querySelector('#chart').data.filter(t => t.meta === 'points').flatMap(t => t.x).length") == 1
    opened(SET, "[data-filter=status]", "failed", "input")
    assert column(0) == []
    opened(SET, "#words", "", "input")
    assert column(0) == ["softmax"]


def test_maps_change_their_quantity(opened: Callable[..., Any]) -> None:
    cell = "return document.querySelector('.map td').textContent"
    assert opened(cell) == "91 %"
    opened(SET, "#quantity", "4", "change")
    assert opened(cell) == "0.909"


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_overflows_and_all_text_has_contrast(browser: Any, opened: Callable[..., Any], width: int, theme: str) -> None:
    show(browser, width)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
    eventually(browser, "return document.documentElement.dataset.theme === arguments[0]", theme)  # follows the system
    eventually(browser, "return document.querySelector('#chart .main-svg').getBoundingClientRect().right <= innerWidth")
    wide = opened("""
        const inside = e => e.closest('.scroll') && !e.matches('.scroll') || e.closest('.skip') || e.closest('svg');
        const over = e => !inside(e) && e.getBoundingClientRect().right > innerWidth + 0.5;
        return [...document.querySelectorAll('body *')].filter(over).map(e => e.tagName + '.' + e.className)""")
    assert wide == [] and opened("return document.documentElement.scrollWidth") <= width
    colours = opened("""
        const rgb = text => text.match(/[\\d.]+/g).map(Number), found = new Set();
        const ground = e => {
            for (; e; e = e.parentElement) {
                const c = rgb(getComputedStyle(e).backgroundColor);
                if (c[3] === undefined) return c;
            }
            return [255, 255, 255];
        };
        const own = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
        for (const e of document.querySelectorAll('body *')) {
            if (!own(e) || e.closest('svg, script, noscript') || !e.getClientRects().length) continue;
            const tint = rgb(getComputedStyle(e).backgroundColor), below = ground(e);
            const mixed = tint[3] > 0 ? below.map((v, i) => v * (1 - tint[3]) + tint[i] * tint[3]) : below;
            found.add(JSON.stringify([rgb(getComputedStyle(e).color).slice(0, 3), mixed.slice(0, 3)]));
        }
        const text = new Set([...document.querySelectorAll('#chart text, #errors text')].map(e => getComputedStyle(e).fill));
        for (const fill of text) found.add(JSON.stringify([rgb(fill).slice(0, 3), ground(document.body).slice(0, 3)]));
        return [...found].map(JSON.parse)""")
    assert len(colours) > 3
    for ink, ground in colours:
        assert contrast(*(luminance(part / 255 for part in rgb) for rgb in (ink, ground))) >= 4.5, (ink, ground)


def test_keyboard_names_and_the_theme(browser: Any, opened: Callable[..., Any]) -> None:
    before = opened("return document.documentElement.dataset.theme")
    opened("document.querySelector('#theme').click()")
    assert opened("return document.documentElement.dataset.theme") != before
    unnamed = opened("""
        const named = e => e.closest('.modebar') || e.ariaLabel || e.textContent.trim() || e.labels?.length;
        const all = [...document.querySelectorAll('button, input, select, [role=img], .scroll')];
        return all.filter(e => !named(e)).map(e => e.outerHTML)""")
    assert unnamed == []
    show_it = "document.querySelectorAll('.show')[arguments[0]].click()"
    opened(show_it, 0)  # what Enter does on a focused button
    assert "intensity" in opened("return document.querySelector('#detail').textContent")
    assert opened("return document.querySelectorAll('#chart .hoverlayer text').length") > 0


def test_no_request_leaves_the_page(browser: Any, page: Path) -> None:
    browser.get_log("performance")
    browser.get(page.as_uri())
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert asked and all(url.startswith(("file:", "data:", "blob:")) for url in asked), asked


def test_it_prints(browser: Any, opened: Callable[..., Any]) -> None:
    import base64

    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF") and 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 12
    assert opened("return document.querySelector('details').open") is True


def test_print_cuts_nothing_and_is_light(browser: Any, opened: Callable[..., Any]) -> None:
    """On the width of A4 between its margins, from a dark page."""
    show(browser, 703)
    theme = [{"name": "prefers-color-scheme", "value": "dark"}]
    try:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": theme})
        opened("dispatchEvent(new Event('beforeprint'))")
        eventually(browser, "return document.querySelector('#chart .main-svg').getBoundingClientRect().right <= innerWidth")
        wide = opened("""
            const over = e => !e.closest('svg') && e.getBoundingClientRect().right > innerWidth + 0.5;
            return [...document.querySelectorAll('body *')].filter(over).map(e => e.tagName + '.' + e.className)""")
        assert wide == []
        style = "const s = getComputedStyle(document.documentElement);"
        colours = opened(f"{style} return ['--ground', '--ink'].map(n => s.getPropertyValue(n))")
        assert colours == ["#ffffff", "#1d2126"]
        shown = "return [...document.querySelectorAll(arguments[0])].some(e => e.getClientRects().length)"
        assert opened(shown, "#chart .point") and not opened(shown, ".modebar, nav, #toggles, #filter")
        # A browser repeats the head of a table whose buttons are no boxes.
        assert opened("return getComputedStyle(document.querySelector('#table th button')).display") == "contents"
    finally:
        opened("dispatchEvent(new Event('afterprint'))")
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def test_keys_alone_reach_and_sort(browser: Any, opened: Callable[..., Any]) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys: str) -> None:
        for key in keys:
            ActionChains(browser).send_keys(key).perform()

    at = "const e = document.activeElement; return [e.className || e.id || e.tagName, getComputedStyle(e).outlineStyle]"
    press(Keys.TAB)
    assert opened(at) == ["skip", "solid"]  # the first stop, and it is seen
    press(Keys.ENTER)
    eventually(browser, "return location.hash === '#roofline'")
    stops = opened("return document.querySelectorAll('#chart .modebar-btn').length") + 1  # the picture's own buttons
    press(*[Keys.TAB] * stops)
    assert opened("return document.activeElement.type") == "checkbox"
    box = opened("return document.activeElement.checked")
    press(Keys.SPACE)
    assert opened("return document.activeElement.checked") != box
    opened("document.querySelector('#table th button').focus()")
    press(Keys.ENTER)
    assert opened("return document.querySelector('#table th').ariaSort") == "ascending"
