import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser

import pandas as pd
import pytest
from result_files import HOSTILE, KINDS, cluster, measurement, write_all

from topotune.links.document import to_document as measurement_to_document
from topotune.report.compose import compose
from topotune.report.html.page import render_page
from topotune.report.markdown import literal, markdown_text
from topotune.report.spreadsheet import csv_text
from topotune.results import ResultFile, read_result
from topotune.topology import topology_to_document


class Parsed(HTMLParser):
    """Elements, their attributes, and the text of scripts, as a browser would find them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.texts: list[str] = []
        self._script: dict[str, str | None] | None = None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "script":
            self._script = dict(attributes)
            self.scripts.append((self._script, ""))

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None

    def handle_data(self, data):
        if self._script is None:
            self.texts.append(data)
        else:
            self.scripts[-1] = (self._script, self.scripts[-1][1] + data)

    def islands(self) -> dict[str, object]:
        return {
            attributes["id"]: json.loads(text)
            for attributes, text in self.scripts
            if attributes.get("type") == "application/json"
        }


def page_of(*paths) -> str:
    return render_page(compose([read_result(path) for path in paths]))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("hostile"), HOSTILE)


@pytest.fixture(scope="module")
def whole(hostile):
    return page_of(*hostile.values())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_makes_a_page(hostile, kind):
    parsed = Parsed(page_of(hostile[kind]))
    assert "section" in [tag for tag, _ in parsed.elements]
    assert any(name.startswith("csv-") for name in parsed.islands())


def test_a_page_holds_a_section_for_each_file_and_the_curves_together(whole):
    headings = re.findall(r"<h2[^>]*>([^<]+)", whole)
    assert [heading.strip() for heading in headings] == [
        "Findings",
        "Plan",
        "The plan against the default",
        "Allreduce, 4 ranks",
        "The training step",
        "Cluster",
        "Measured links",
        "Tuning over time",
        "The optimum",
        "Prediction",
        "Schedule",
        "Gradients of the job",
    ]


def test_no_text_of_a_file_becomes_an_element(whole):
    parsed = Parsed(whole)
    assert not [element for element in parsed.elements if element[0] in ("img", "b", "iframe")]
    assert not [name for _, attributes in parsed.elements for name in attributes if name.startswith("on")]
    executable = [text for attributes, text in parsed.scripts if "type" not in attributes]
    assert len(executable) == 2
    assert "window.owned" not in "".join(executable)


def test_every_text_is_shown_as_it_is(whole):
    assert HOSTILE in "".join(Parsed(whole).texts)


def test_labels_of_charts_are_escaped_for_plotly(whole):
    def texts(value):
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for one in value.values() if isinstance(value, dict) else value:
                yield from texts(one)

    figures = [one for name, one in Parsed(whole).islands().items() if name.startswith("figure-")]
    assert len(figures) == 14
    found = [text for figure in figures for text in texts(figure)]
    assert any("&lt;/script&gt;" in text for text in found)
    for text in found:
        assert not re.search(r"<(?!br>|extra>|/extra>)", text), text


def test_only_the_scripts_of_the_page_may_run_and_nothing_is_fetched(whole):
    policy = next(
        attributes["content"]
        for tag, attributes in Parsed(whole).elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    scripts = re.findall(r"<script>(.*?)</script>", whole, re.DOTALL)
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    for tag, attributes in Parsed(whole).elements:
        for name in ("src", "href", "action"):
            address = attributes.get(name)
            assert address is None or address.startswith(("#", "data:,")), (tag, address)


def test_the_same_files_make_the_same_page(hostile):
    assert page_of(hostile["plan"], hostile["check"]) == page_of(hostile["plan"], hostile["check"])


def test_a_page_without_charts_goes_without_plotly(hostile):
    assert len(page_of(hostile["check"])) < 50_000


def test_names_of_tables_are_unique_and_safe_for_files(hostile, tmp_path):
    again = tmp_path / "../../plan odd;name.json"
    files = [read_result(hostile["plan"])] * 2
    files.append(ResultFile(path=str(again), kind="plan", value=files[0].value))
    names = [table.name for table in compose(files).tables]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in names)


def test_a_table_that_is_downloaded_holds_the_frame(hostile):
    report = compose([read_result(hostile["comparison"])])
    table = report.tables[0]
    islands = Parsed(render_page(report)).islands()
    read = pd.read_csv(io.StringIO(islands[f"csv-{table.name}"]))
    assert list(read["message_bytes"]) == [1024, 65536, 2**20]
    assert list(read.columns) == list(table.frame.columns)


def test_a_text_that_a_spreadsheet_would_run_gets_an_apostrophe_and_a_number_does_not():
    frame = pd.DataFrame({"name": ["=1+1", "@x", "-x", "fine", None], "delta_s": [-1.5, 1, 2, 3, 4]})
    assert csv_text(frame).splitlines() == [
        "name,delta_s", "'=1+1,-1.5", "'@x,1.0", "'-x,2.0", "fine,3.0", ",4.0",
    ]  # fmt: skip


def test_markdown_shows_texts_and_makes_nothing_of_them(hostile):
    text = markdown_text(compose([read_result(path) for path in hostile.values()]))
    assert "<img" not in text.replace("\\<", "")
    assert literal("a|b\n# @me [x](http://y) #1 `c`") == (
        "a\\|b \\# @\u200bme \\[x\\]\\(http:\u200b//y\\) \\#\u200b1 \\`c\\`"
    )
    assert all(line.count(" | ") <= 25 for line in text.splitlines())


def test_what_only_a_page_can_do_is_said_on_the_page_alone(hostile, whole, tmp_path):
    hint = "by a click on their name"
    document = json.loads(hostile["prediction"].read_text())
    for size in document["sizes"]:
        size["predictions"] = [
            size["predictions"][0] | {"algorithm": f"a{n}", "params": {}, "time_s": 1e-3 * (n + 1)}
            for n in range(12)
        ]
    many = tmp_path / "many.json"
    many.write_text(json.dumps(document))
    assert hint in page_of(many)
    assert hint not in whole  # whose few curves are all drawn
    text = markdown_text(compose([read_result(many)]))
    assert hint not in text
    assert not re.search("^## Allreduce, ", text, re.MULTILINE)


@pytest.mark.slow
def test_a_report_of_1024_gpus_stays_below_8_mb(tmp_path):
    paths = [tmp_path / "cluster.json", tmp_path / "links.json"]
    paths[0].write_text(json.dumps(topology_to_document(cluster(512))))
    paths[1].write_text(json.dumps(measurement_to_document(measurement(40, 1))))
    page = page_of(*paths, *write_all(tmp_path).values())
    assert len(page.encode()) < 8e6
    assert "512 nodes alike" in page


def test_a_plan_says_what_it_makes_of_buckets_and_of_a_recorded_model(tmp_path):
    paths = write_all(tmp_path)
    text = markdown_text(compose([read_result(paths["plan"]), read_result(paths["gradients"])]))
    assert "DDP buckets: caps" in text
    assert "## The training step" in text
    assert re.search(r"default: \d+ buckets?, a backward of 100 ms", text)
