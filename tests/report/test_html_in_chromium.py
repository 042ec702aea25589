"""The page as a reader has it: in a browser, wide and narrow, light and dark, by keyboard, printed."""

import json

import headless_chromium
import pytest
from result_files import HOSTILE, cluster, measurement, write_all

from topotune.links.document import to_document as measurement_to_document
from topotune.report.compose import compose
from topotune.report.html.page import render_page
from topotune.results import read_result
from topotune.topology import topology_to_document

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        headless_chromium.find() is None,
        reason=f"no browser: none of {', '.join(headless_chromium.NAMES)} (apt-get install chromium)",
    ),
]

DRAWN = """new Promise((done) => {
  const timer = setInterval(() => {
    if (document.documentElement.dataset.drawn) { clearInterval(timer); done(true); }
  }, 20);
})"""

CONTRAST = """(() => {
  const linear = (share) => (share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4);
  const channel = (value) => linear(value / 255);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const shape = at.matches(".cluster .v") ? at.querySelector("rect") : null;
      const colour = rgba(shape ? getComputedStyle(shape).fill : getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgba("white");
  };
  const found = [];
  for (const element of document.querySelectorAll("body *:not(script):not(style)")) {
    const own = [...element.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest(".modebar")) continue;
    if (element.tagName === "title" || element.closest(".skip")) continue;
    const style = getComputedStyle(element);
    const text = rgba(element instanceof SVGElement ? style.fill : style.color);
    const [high, low] = [luminance(text), luminance(ground(element))].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) found.push([element.textContent.slice(0, 40), ratio.toFixed(2)]);
  }
  return found;
})()"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    paths = list(write_all(folder, HOSTILE).values())
    for name, document in (
        ("cluster.json", topology_to_document(cluster(1000, slow=("a 7/nic",)))),
        ("links.json", measurement_to_document(measurement(4, 4, slow_node=1))),
    ):
        paths.append(folder / name)
        paths[-1].write_text(json.dumps(document))
    (folder / "report.html").write_text(render_page(compose([read_result(path) for path in paths])))
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with headless_chromium.Page(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module", params=["light", "dark"])
def page(browser, page_file, request):
    browser.said.clear()
    browser.fetched.clear()
    browser.open(page_file, dark=request.param == "dark")
    assert browser.run(DRAWN)
    return browser


def test_every_picture_is_drawn_and_nothing_is_said_on_the_console(page):
    assert page.said == []
    assert page.run("document.querySelectorAll('[data-figure]').length") == 16
    drawn = """[...document.querySelectorAll('[data-figure]')].map((one) => [
      one.querySelector('.main-svg').getBoundingClientRect().width, one.querySelectorAll('.trace, .hm').length
    ])"""
    assert all(width >= 100 and num_traces > 0 for width, num_traces in page.run(drawn))
    assert page.run("document.querySelectorAll('svg.cluster .v').length") > 10


def test_no_chart_offers_to_send_anything_away(page):
    offered = page.run("[...document.querySelectorAll('.modebar-btn')].map((one) => one.dataset.title)")
    assert offered
    assert not [title for title in offered if "hare" in title or "loud" in title]


def test_links_are_coloured_by_kind_or_by_share(page):
    colours = """(() => {
      const lines = [...document.querySelectorAll('.cluster .l:not(.legend .l)')];
      return [...new Set(lines.map((one) => getComputedStyle(one).stroke))].sort();
    })()"""
    by_kind = page.run(colours)
    page.run("for (const one of document.querySelectorAll('input.by-share')) one.click()")
    by_share = page.run(colours)
    assert by_share != by_kind
    assert len(by_share) == 3  # as fast as their class, half of it, alone in it
    assert page.run("getComputedStyle(document.querySelector('.legend.by-kind')).display") == "none"
    page.run("for (const one of document.querySelectorAll('input:not(.by-share)[type=radio]')) one.click()")
    assert page.run(colours) == by_kind


def test_nothing_of_the_files_is_run_and_nothing_is_fetched(page, page_file):
    assert page.run("window.owned === undefined")
    assert page.run("document.querySelectorAll('.chart img, main img, .js-plotly-plot a[href]').length") == 0
    allowed = (page_file.as_uri(), "data:", "blob:")
    assert [address for address in page.fetched if not address.startswith(allowed)] == []


def test_text_stands_out_from_its_ground(page):
    page.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.run(CONTRAST) == []


@pytest.mark.parametrize("width", [320, 768])
def test_a_narrow_screen_does_not_scroll_sideways(browser, page_file, width):
    browser.open(page_file, width=width, height=640)
    assert browser.run(DRAWN)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.run("document.documentElement.scrollWidth") <= width


def test_tables_and_downloads_are_reached_by_keyboard(browser, page_file):
    browser.open(page_file)
    assert browser.run(DRAWN)
    browser.press("Tab")
    assert browser.run("document.activeElement.className") == "skip"
    browser.run("document.querySelector('summary').focus()")
    browser.press("Enter")
    assert browser.run("document.querySelector('details').open")
    browser.press("Tab")
    assert browser.run("document.activeElement.dataset.csv") == "check_findings"
    browser.run("HTMLAnchorElement.prototype.click = function () { window.saved = this.download; }")
    browser.press("Enter")
    assert browser.run("window.saved") == "check_findings.csv"


def test_a_page_is_printed_in_dark_on_white(browser, page_file):
    browser.open(page_file, dark=True)
    assert browser.run(DRAWN)
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("document.querySelector('nav').checkVisibility()") is False
    browser.call("Emulation.setEmulatedMedia", media="")
    pdf = browser.call("Page.printToPDF", printBackground=True)["data"]
    assert len(pdf) > 10_000
    assert browser.said == []
