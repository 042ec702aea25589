import json

import pytest
from command_line import topotune
from result_files import write_all


@pytest.fixture
def files(tmp_path):
    return [path.name for path in write_all(tmp_path).values()]


def test_a_page_is_written_and_said_where(tmp_path, files):
    done = topotune("report", *files, "-o", "report.html", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-1] == "written to report.html"
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    again = topotune("report", *files, "-o", "report.html", cwd=tmp_path)
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_without_a_place_for_the_page_it_says_what_to_write(tmp_path, files):
    done = topotune("report", files[0], cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: a report as html needs a place",
        f"hint: topotune report {files[0]} --format html -o report.html",
    ]


def test_markdown_goes_to_stdout(tmp_path, files):
    done = topotune("report", "plan.json", "--format", "md", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("# topotune report: plan.json\n\n## Plan")
    assert "    topotune run --plan plan.json -- " in done.stdout


def test_the_place_says_what_is_written_unless_the_format_does(tmp_path, files):
    for arguments, start in (
        (("-o", "report.md"), "# topotune report"),
        (("-o", "page.htm"), "<!DOCTYPE html>"),
        (("-o", "pull-request.txt", "--format", "md"), "# topotune report"),
    ):
        done = topotune("report", "plan.json", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / arguments[1]).read_text().startswith(start)


def test_csv_is_a_folder_of_tables_and_json_names_them(tmp_path, files):
    done = topotune("report", *files, "--format", "csv", "-o", "tables", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {file["kind"] for file in document["files"]} >= {"plan", "journal", "optimum"}
    written = {one["path"] for one in document["written"]}
    assert written == {f"tables/{path.name}" for path in (tmp_path / "tables").iterdir()}
    assert "tables/plan-journal_trials.csv" in written


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("report", "nothing.json", "-o", "r.html"), "error: nothing.json: no such file"),
        (("report", "plan.json", "--format", "pdf"), "error: --format pdf: no such format"),
        (("report", "plan.json", "--format", "csv", "-o", "plan.json"), "error: plan.json: is a file"),
        (
            ("report", "plan.json", "-o", "r.pdf"),
            "error: r.pdf: a report is no .pdf file\nhint: ",
        ),
        (("report", "plan.json", "-o", "r.csv"), "error: r.csv: a report is no .csv file\nhint: "),
        (("report", "text.txt", "-o", "r.html"), "error: text.txt: is no result file"),
    ],
    ids=["no file", "no format", "no folder", "no pdf", "no single csv", "no document"],
)
def test_what_cannot_be_done_is_refused_in_a_line(tmp_path, files, arguments, said):
    (tmp_path / "text.txt").write_text("hello")
    done = topotune(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(said)
    assert not (tmp_path / "r.html").exists()
