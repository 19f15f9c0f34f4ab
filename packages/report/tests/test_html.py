import re
from html.parser import HTMLParser

import pytest
from rl_core.errors import DataError
from rl_report import html_report, load_run, write_html

VOID = {"meta", "br", "img", "input", "link", "hr"}


class Page(HTMLParser):
    """Tags must close in order; collects text, ids, links and every address that a browser would load."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.loads, self.words = [], [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        self.loads += [found[key] for key in ("src", "srcset", "data") if key in found]
        assert tag not in ("script", "link", "iframe")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module")
def text(untouched):
    return html_report(load_run(untouched))


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_it_is_well_formed_and_loads_nothing(text, page):
    assert page.loads == []
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "@import" not in text


def test_ids_are_unique_and_links_lead_somewhere(page):
    assert len(page.ids) == len(set(page.ids))
    assert page.links
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_it_tells_the_whole_story(page):
    for expected in (
        "Mean reward rose from 0.2 to 0.9 in 3 steps.",
        "Before and after",
        "before, step 0",
        "after, step 3",
        "format 0.5",
        "ended by stop",
        "ValueError: no number",
        "Time by phase",
        "of which update weights",
        "Memory by phase",
        "4.00 GiB",
        "Parity of generator and trainer",
        "most in step 2: 1",
        "c0ffee, with changes that are not committed",
        "<redacted>",
        "rl train trainer.seed=1",
        "actor/grad_norm",
    ):
        assert expected in page.text


def test_what_a_model_writes_is_text_and_no_markup(text):
    assert "<b>no</b>" not in text
    assert "&lt;b&gt;no&lt;/b&gt;" in text


def test_notes_stand_on_top(folder):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"st')
    assert "The last line of metrics.jsonl is not complete" in Page(html_report(load_run(folder))).text


def test_a_run_of_fine_tuning_has_only_what_it_has(sft_folder):
    page = Page(html_report(load_run(sft_folder)))
    assert "Training loss fell from 5 to 1 in 3 steps." in page.text
    assert "The folder has no environment.json." in page.text
    assert "update sft" in page.text
    assert "memory" in page.ids
    assert not {"held-out", "samples", "parity", "missing"} & set(page.ids)


def test_a_run_that_has_only_begun(logged, row):
    assert "1 of 3" in Page(html_report(load_run(logged(row(1, 0.2))))).text


def test_a_run_that_only_validated(logged):
    page = Page(html_report(load_run(logged({"step": 0, "val-core/d/acc/mean@1": 0.5}))))
    assert "Held-out accuracy is 0.5 on d, validated once." in page.text


def test_where_it_is_written(folder, tmp_path):
    run = load_run(folder)
    assert write_html(run) == folder / "report.html"
    assert write_html(run, tmp_path / "new" / "page.html").is_file()
    assert write_html(run, tmp_path) == tmp_path / "report.html"
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in folder.glob("*.partial")] + [path.name for path in folder.glob(".*")] == []


def test_a_place_that_cannot_be_written_to(folder):
    with pytest.raises(DataError, match=r"cannot be written to .*Choose a file with --html PATH"):
        write_html(load_run(folder), folder / "config.yaml" / "page.html")
