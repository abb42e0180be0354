"""The report page, in a real browser: what it shows, compared with the same filter and order in plain Python."""

import base64
import contextlib
import random
import resource
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from client import ClassScore, ImageError, ImageResult
from client.command_line.report import ReportWriter, relative_link, thumbnail
from tests.conftest import need_program
from tests.web import serving

DEADLINE_S = 60
LABELS = ["tabby", "tabby cat", "tiger cat", "Egyptian cat", "crane", "catamaran", "猫", "Škoda"]

SORT_KEYS = {"arrival": "a", "name": "b", "best": "h", "worst": "l"}  # how the entries of that list begin


def encoded(image: Image.Image, file_format: str = "JPEG", **options: object) -> bytes:
    file = BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


PICTURE = encoded(Image.new("RGB", (320, 200), (200, 120, 40)))


class Entry(NamedTuple):
    name: str
    result: ImageResult


def make_entries(count: int) -> list[Entry]:
    """Results of all kinds in a random order; the names sort the same as text and by their numbers."""
    chance = random.Random(0)
    names = [f"photo{index:05}.jpg" for index in range(count)]
    chance.shuffle(names)
    return [Entry(name, make_result(chance)) for name in names]


def make_result(chance: random.Random) -> ImageResult:
    if chance.random() < 0.15:
        return ImageResult([], ImageError("preprocess", "corrupt", "expected a whole file, got half of one"))
    labels = chance.sample(LABELS, chance.choice([0, 1, 3, 5]))
    scores = sorted((chance.random() for _ in labels), reverse=True)
    return ImageResult(
        [ClassScore(LABELS.index(label), score, label) for label, score in zip(labels, scores, strict=True)]
    )


def write_report(path: Path, entries: list[Entry], file: bytes | Path = PICTURE) -> Path:
    with ReportWriter(path) as report:
        for entry in entries:
            report.add(entry.name, file, entry.result)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = need_program("chromium", "chromium")
    for switch in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"):
        options.add_argument(switch)
    driver = webdriver.Chrome(options, Service(need_program("chromedriver", "chromium-driver")))
    driver.set_page_load_timeout(DEADLINE_S)
    driver.set_script_timeout(DEADLINE_S)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return make_entries(60)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, entries: list[Entry]) -> Path:
    return write_report(tmp_path_factory.mktemp("report") / "report.html", entries)


def open_page(browser: webdriver.Chrome, path: Path, fragment: str = "", height: int = 9000) -> None:
    """Open the page anew, in a window so high that all cards are in it."""
    browser.get("about:blank")  # else only the fragment would change
    size = {"width": 1200, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(path.as_uri() + fragment)


def texts(browser: webdriver.Chrome, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(one => one.textContent)"
    return list(browser.execute_script(script, selector))


def field(browser: webdriver.Chrome, name: str) -> WebElement:
    return browser.find_element(By.NAME, name)


def visible(browser: webdriver.Chrome, name: str) -> bool:
    return browser.find_element(By.ID, name).is_displayed()


def select(entries: list[Entry], label: str, min_percent: int, failures: bool, order: str) -> list[str]:
    """The names that the page should show, in order."""
    label = label.lower()
    is_whole = label in (one.lower() for one in LABELS)

    def has_label(one: ClassScore) -> bool:
        return one.label.lower() == label if is_whole else label in one.label.lower()

    def matches(result: ImageResult) -> bool:
        if failures:
            return result.error is not None
        if not label and min_percent == 0:
            return True
        return any(one.score >= min_percent / 100 and has_label(one) for one in result.classes)

    def best(entry: Entry, sign: int) -> float:
        return sign * entry.result.classes[0].score if entry.result.classes else float("inf")

    found = [entry for entry in entries if matches(entry.result)]
    orders = {
        "arrival": found,
        "name": sorted(found),
        "best": sorted(found, key=lambda entry: best(entry, -1)),
        "worst": sorted(found, key=lambda entry: best(entry, 1)),
    }
    return [entry.name for entry in orders[order]]


@pytest.mark.parametrize(
    ("label", "min_percent", "failures", "order"),
    [
        ("", 0, False, "arrival"),
        ("", 0, False, "name"),
        ("", 0, False, "best"),
        ("", 0, False, "worst"),
        ("CAT", 0, False, "arrival"),  # four labels contain it
        ("tabby", 0, False, "name"),  # a label by itself: `tabby cat` is another
        ("cat", 35, False, "best"),
        ("", 83, False, "worst"),
        ("škoda", 10, False, "name"),
        ("no such label", 0, False, "arrival"),
        ("", 0, True, "name"),
        ("cat", 20, True, "arrival"),  # failures have no classes: the rest of the filter is out of use
    ],
)
def test_filter_and_order_match_the_reference(
    browser: webdriver.Chrome,
    page: Path,
    entries: list[Entry],
    label: str,
    min_percent: int,
    failures: bool,
    order: str,
) -> None:
    open_page(browser, page)
    field(browser, "label").send_keys(label)
    field(browser, "min").send_keys(Keys.ARROW_RIGHT * min_percent)
    if failures:
        field(browser, "failures").click()
    field(browser, "sort").send_keys(SORT_KEYS[order])
    expected = select(entries, label, min_percent, failures, order)
    wait = WebDriverWait(browser, DEADLINE_S)
    with contextlib.suppress(TimeoutException):  # the assertion says more
        wait.until(lambda _: texts(browser, ".name") == expected)
    assert texts(browser, ".name") == expected
    assert texts(browser, "#count") == [f"{len(expected)} of 60"]
    assert visible(browser, "empty") == (not expected)
    assert field(browser, "label").is_enabled() is not failures

    changed = bool(label or min_percent or failures or order != "arrival")
    wait.until(lambda _: browser.execute_script("return location.hash !== ''") == changed)
    fragment = browser.execute_script("return location.hash")
    open_page(browser, page, fragment)  # the link shows the same view
    assert texts(browser, ".name") == expected
    browser.find_element(By.CSS_SELECTOR, "[type=reset]").click()
    wait.until(lambda _: texts(browser, ".name") == [entry.name for entry in entries])


def test_a_card_shows_classes_and_bars_or_the_error(
    browser: webdriver.Chrome, page: Path, entries: list[Entry]
) -> None:
    open_page(browser, page)
    cards = browser.find_elements(By.CLASS_NAME, "card")
    assert len(cards) == len(entries)
    for card, entry in zip(cards[:20], entries, strict=False):
        lines = card.find_elements(By.CLASS_NAME, "class")
        assert [line.text.split("\n") for line in lines] == [
            [one.label, f"{one.score * 100:.1f}%"] for one in entry.result.classes
        ]
        for line, one in zip(lines, entry.result.classes, strict=True):
            filled = float(line.value_of_css_property("background-size").split("%")[0])
            assert filled == pytest.approx(100 * one.score, abs=0.01)
        errors = [error.text for error in card.find_elements(By.CLASS_NAME, "error")]
        if not entry.result.classes:
            assert errors == [str(entry.result.error or "no class reaches the threshold")]


def test_a_card_counts_the_classes_without_room_and_enlarged_it_shows_all(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    result = ImageResult([ClassScore(index, 0.9 / 2**index, f"class {index}") for index in range(12)])
    open_page(browser, write_report(tmp_path / "report.html", [Entry("a", result)]))
    assert texts(browser, ".card .label") == [f"class {index}" for index in range(4)]
    assert texts(browser, ".card .more") == ["and 8 more"]
    browser.find_element(By.CLASS_NAME, "card").click()
    assert texts(browser, "#viewer .label") == [f"class {index}" for index in range(12)]


def test_suggestions_are_the_labels_with_their_counts(
    browser: webdriver.Chrome, page: Path, entries: list[Entry]
) -> None:
    open_page(browser, page)
    script = "return [...document.querySelectorAll('datalist option')].map(one => [one.value, one.label])"
    images = Counter(one.label for entry in entries for one in entry.result.classes)
    suggested = [(label, int(text.split()[0])) for label, text in browser.execute_script(script)]
    assert dict(suggested) == images
    assert [number for _, number in suggested] == sorted(images.values(), reverse=True)


def test_by_keyboard_alone(browser: webdriver.Chrome, page: Path, entries: list[Entry]) -> None:
    open_page(browser, page, height=700)

    def press(*keys: str) -> None:
        webdriver.ActionChains(browser).send_keys(*keys).perform()

    def focused() -> str:
        return str(browser.execute_script("return document.activeElement.querySelector('.name')?.textContent"))

    field(browser, "sort").send_keys(Keys.TAB)
    press(Keys.TAB)
    assert focused() == entries[0].name
    press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert focused() == entries[2].name
    press(Keys.END)
    assert focused() == entries[-1].name
    press(Keys.ARROW_LEFT, Keys.ENTER)
    assert visible(browser, "viewer")
    assert browser.find_element(By.ID, "view-name").text == entries[-2].name
    press(Keys.ARROW_LEFT)
    assert browser.find_element(By.ID, "view-name").text == entries[-3].name
    press(Keys.ESCAPE)
    WebDriverWait(browser, DEADLINE_S).until(lambda _: focused() == entries[-3].name)
    press(Keys.HOME)
    assert focused() == entries[0].name


def test_a_click_enlarges_the_file_itself(browser: webdriver.Chrome, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    file = tmp_path / "photos" / "50% of a #1 café?.jpg"
    file.write_bytes(encoded(Image.new("RGB", (900, 600), "green")))
    page = write_report(tmp_path / "report.html", [Entry("a", ImageResult([]))], file)
    open_page(browser, page)
    browser.find_element(By.CLASS_NAME, "card").click()
    natural_width = "return document.querySelector('#view img').naturalWidth"
    WebDriverWait(browser, DEADLINE_S).until(lambda _: browser.execute_script(natural_width) == 900)
    assert browser.find_element(By.ID, "open").get_attribute("href") == file.as_uri()
    browser.find_element(By.ID, "close").click()
    assert not visible(browser, "viewer")

    open_page(browser, write_report(tmp_path / "bytes.html", [Entry("a", ImageResult([]))]))
    browser.find_element(By.CLASS_NAME, "card").click()
    assert browser.execute_script(natural_width) == 160  # the thumbnail: nobody said where the file is
    assert not visible(browser, "open")


HOSTILE = [
    "</script><script>hacked = 1</script>",
    "<img src=x onerror='hacked = 2'>",
    '"><svg onload=hacked=3>',
    "'); hacked = 4; ('",
    "<!--<script>",
    "a\nb\tc\r\u2028d",
    "&lt;b&gt; &amp; \\u003cb\\u003e",
    "\u202etxt.exe",
    "javascript:hacked=5",
    "]]></style></title></template><h1>",
    "caf\udce9.jpg",  # the byte E9 of a name that is no UTF-8
]


def test_hostile_names_labels_and_errors_are_only_text(browser: webdriver.Chrome, tmp_path: Path) -> None:
    with ReportWriter(tmp_path / "report.html") as report:
        for index, text in enumerate(HOSTILE):
            failure = ImageResult([], ImageError("preprocess", "corrupt", text))
            label = ImageResult([ClassScore(0, 0.5, text)])
            report.add(text, Path(text) if index % 2 else PICTURE, failure)
            report.add(text, tmp_path / text, label)
    open_page(browser, tmp_path / "report.html")
    names = [text.replace("\udce9", r"\udce9") for text in HOSTILE]
    assert texts(browser, ".name") == [name for name in names for _ in range(2)]
    assert texts(browser, ".error") == [f"corrupt: {name}" for name in names]
    assert texts(browser, ".label") == [" ".join(name.split()) for name in names]
    for button in browser.find_elements(By.CLASS_NAME, "card"):
        button.click()
        assert str(browser.find_element(By.ID, "open").get_attribute("href") or "file:").startswith("file:")
        browser.find_element(By.ID, "close").click()
    field(browser, "label").send_keys(HOSTILE[0])
    assert texts(browser, "#count") == [f"1 of {2 * len(HOSTILE)}"]
    assert browser.execute_script("return typeof hacked") == "undefined"
    assert browser.execute_script("return document.querySelectorAll('script, style, h1, svg').length") == 3


def test_the_page_reaches_no_network(browser: webdriver.Chrome, page: Path, tmp_path: Path) -> None:
    (tmp_path / "free.html").write_text("<p>A page without a policy.")
    script = """
        const done = arguments[1], image = new Image();
        image.onload = () => done("loaded");
        image.onerror = () => done("refused");
        image.src = arguments[0];
    """
    with serving({"/a.jpg": PICTURE}) as url:
        browser.get((tmp_path / "free.html").as_uri())
        assert browser.execute_async_script(script, f"{url}/a.jpg") == "loaded"
        open_page(browser, page)
        assert browser.execute_async_script(script, f"{url}/a.jpg") == "refused"
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(one => one.name)")
    assert [name for name in loaded if not name.startswith(("data:", url))] == []


def test_ten_thousand_images(browser: webdriver.Chrome, tmp_path: Path) -> None:
    many = make_entries(10_000)
    open_page(browser, write_report(tmp_path / "report.html", many), height=800)
    assert texts(browser, "#count") == ["10,000 of 10,000"]
    field(browser, "label").send_keys("cat")
    field(browser, "min").send_keys(Keys.ARROW_RIGHT * 30)
    field(browser, "sort").send_keys(SORT_KEYS["name"])
    expected = select(many, "cat", 30, False, "name")
    assert texts(browser, "#count") == [f"{len(expected):,} of 10,000"]
    assert texts(browser, ".name")[:12] == expected[:12]
    browser.execute_script("scrollTo(0, document.body.scrollHeight)")
    WebDriverWait(browser, DEADLINE_S).until(lambda _: texts(browser, ".name")[-12:] == expected[-12:])
    assert len(texts(browser, ".name")) < 100  # what is far from the window is not in the page


def test_thumbnails_are_small_and_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it clockwise
    stored = Image.new("RGB", (1600, 800), "black")
    stored.paste("white", (0, 0, 800, 800))  # its left half is the upper one of the upright picture
    encoded_thumbnail = thumbnail(encoded(stored, exif=exif, comment=b"secret"))
    assert encoded_thumbnail is not None
    file = base64.b64decode(encoded_thumbnail)
    with Image.open(BytesIO(file)) as image:
        assert (image.format, image.size) == ("JPEG", (80, 160))
        assert np.asarray(image)[:70].min() > 240
        assert np.asarray(image)[90:].max() < 15
    assert b"secret" not in file
    assert thumbnail(b"no image") is None


def test_links_lead_from_the_page_to_the_file(tmp_path: Path) -> None:
    page = tmp_path / "reports" / "report.html"
    assert relative_link(tmp_path / "photos" / "a b.jpg", page) == "./../photos/a%20b.jpg"
    assert relative_link(tmp_path / "reports" / "javascript:alert(1)", page) == "./javascript%3Aalert%281%29"
    assert relative_link(tmp_path / "reports" / "caf\udce9.jpg", page) == "./caf%E9.jpg"


def test_memory_does_not_grow_with_the_page(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (160, 160, 3), dtype=np.uint8)
    file, entry = encoded(Image.fromarray(pixels)), make_entries(1)[0]
    with ReportWriter(tmp_path / "report.html") as report:
        report.add(entry.name, file, entry.result)
        tracemalloc.start()
        try:
            for _ in range(300):
                report.add(entry.name, file, entry.result)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < (tmp_path / "report.html").stat().st_size / 5


def test_images_may_come_from_several_threads(browser: webdriver.Chrome, tmp_path: Path) -> None:
    entries = make_entries(60)
    with ReportWriter(tmp_path / "report.html") as report, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda entry: report.add(entry.name, PICTURE, entry.result), entries))
    open_page(browser, tmp_path / "report.html", "#sort=name")
    assert texts(browser, ".name") == sorted(entry.name for entry in entries)


def write_interrupted(path: Path, entries: list[Entry]) -> None:
    with ReportWriter(path) as report:
        for entry in entries:
            report.add(entry.name, PICTURE, entry.result)
        raise KeyboardInterrupt


def test_a_run_that_ends_early_leaves_a_page_that_says_so(browser: webdriver.Chrome, tmp_path: Path) -> None:
    path, entries = tmp_path / "report.html", make_entries(5)
    with pytest.raises(KeyboardInterrupt):
        write_interrupted(path, [])
    assert list(tmp_path.iterdir()) == []  # nothing to show
    with pytest.raises(KeyboardInterrupt):
        write_interrupted(path, entries)
    assert list(tmp_path.iterdir()) == [path]
    open_page(browser, path)
    assert texts(browser, ".name") == [entry.name for entry in entries]
    assert visible(browser, "incomplete")

    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write_interrupted(path, [])
    assert path.read_bytes() == before
    open_page(browser, write_report(path, entries))
    assert not visible(browser, "incomplete")


def test_a_page_cut_within_a_row_shows_the_rows_before(browser: webdriver.Chrome, tmp_path: Path) -> None:
    entries = make_entries(5)
    path = write_report(tmp_path / "report.html", entries)
    path.write_text(path.read_text("utf-8")[:-200], "utf-8")
    open_page(browser, path)
    assert texts(browser, ".name") == [entry.name for entry in entries[:4]]
    assert visible(browser, "incomplete")


def test_a_disk_that_is_full_leaves_the_page_of_before(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("the page of before")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, unlimited[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_report(path, make_entries(200))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert path.read_text() == "the page of before"
    assert list(tmp_path.iterdir()) == [path]
