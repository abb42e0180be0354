"""Annotated copies: what is drawn, how long the bars are, and which files are written."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path, PurePath

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from client import ClassScore, ImageError, ImageResult
from client.command_line import annotate
from client.command_line.annotate import UnreadableImageError, draw, draw_on_frame, write_copy
from tests.conftest import need_program

SCORES = (0.75, 0.2, 0.04, 0.009, 0.001)
RESULT = ImageResult([ClassScore(id_, score, f"class {id_}") for id_, score in enumerate(SCORES)])
FAILURE = ImageResult([], ImageError("preprocess", "corrupt", "expected 640 x 480 pixels, got 7 bytes " + "x" * 300))
BLUE, RED, GREY = (84, 190, 255), (255, 138, 128), (96, 102, 112)


def encoded(image: Image.Image, file_format: str, **options: object) -> bytes:
    file = BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def noise(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def mask(image: Image.Image, colour: tuple[int, int, int]) -> npt.NDArray[np.bool_]:
    return np.asarray((np.asarray(image) == colour).all(axis=2))


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "size",
    [(1, 1), (32, 32), (100, 80), (1000, 1), (1, 1000), (240, 240), (500, 375), (3000, 300), (8000, 6000)],
    ids=str,
)
def test_bars_are_as_long_as_the_scores_on_a_picture_of_any_size(size: tuple[int, int]) -> None:
    drawn = draw(Image.new("RGB", size, (200, 30, 90)), RESULT)
    blue, grey = mask(drawn, BLUE), mask(drawn, GREY)
    bars = [y for y in range(1, drawn.height) if grey[y].any() and not grey[y - 1].any()]  # the first line of each
    assert len(bars) == len(SCORES)
    for y, score in zip(bars, SCORES, strict=True):
        length = blue[y].sum() / (blue[y] | grey[y]).sum()
        assert length == pytest.approx(score, abs=2 / 200)  # two pixels of the shortest track


@pytest.mark.parametrize("size", [(240, 240), (641, 481), (1920, 1080), (300, 900)], ids=str)
@pytest.mark.parametrize("result", [RESULT, FAILURE, ImageResult([])], ids=["classes", "failure", "nothing"])
def test_a_frame_keeps_its_shape_and_the_picture_above_the_plate(size: tuple[int, int], result: ImageResult) -> None:
    frame = np.asarray(noise(*size))
    before = frame.copy()
    drawn = draw_on_frame(frame, result)
    assert (drawn.dtype, drawn.shape) == (frame.dtype, frame.shape)
    np.testing.assert_array_equal(frame, before)
    top = int(0.38 * size[1])  # the plate and its margin take 60 %, and a little
    np.testing.assert_array_equal(drawn[:top], frame[:top])
    assert (drawn != frame).any()


@pytest.mark.parametrize("size", [(1, 1), (17, 1000), (1000, 17), (60000, 1)], ids=str)
def test_under_a_narrow_picture_it_stays_whole(size: tuple[int, int]) -> None:
    picture = Image.new("RGB", size, (10, 200, 30))
    drawn = draw(picture, RESULT)
    assert min(drawn.size) >= 128
    assert mask(drawn, (10, 200, 30)).sum() >= size[0] * size[1]


def luminance(colour: npt.ArrayLike) -> float:
    """Relative luminance. Source: WCAG 2.2, definition of relative luminance."""
    channels = np.asarray(colour) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("ground", [0, 128, 255])
@pytest.mark.parametrize("ink", [(255, 255, 255), RED], ids=["label", "failure"])
def test_text_stands_out_on_dark_and_light(ground: int, ink: tuple[int, int, int]) -> None:
    drawn = draw(Image.new("RGB", (640, 480), (ground,) * 3), FAILURE if ink == RED else RESULT)
    text = mask(drawn, ink)
    text[:, -240:] = False  # a white picture, right of the plate
    text[:192] = False  # and above it
    assert text.sum() > 30
    plate = np.asarray(drawn)[480 - 9 - 4, 100]  # in the plate's lower padding
    light, dark = sorted((luminance(ink), luminance(plate)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5  # WCAG 2.2, 1.4.3


def test_classes_without_room_are_counted() -> None:
    many = ImageResult([ClassScore(id_, 0.01, f"class {id_}") for id_ in range(30)])
    rows = annotate.within(annotate.list_rows(many, 40), max_height=10)
    assert rows[-1].text == f"… {30 - (len(rows) - 1)} more"
    assert sum(row.height for row in rows) <= 10


def test_a_long_label_is_cut_where_the_percentage_begins() -> None:
    font = annotate.load_font(annotate.BUILT_IN, 20)
    cut = annotate.ellipsized("a label that goes on and on " * 9, font, 300)
    assert cut.startswith("a label that")
    assert cut.endswith("…")
    assert 250 < font.getlength(cut) <= 300
    assert annotate.ellipsized("short", font, 300) == "short"


def test_a_system_font_writes_what_the_built_in_one_lacks() -> None:
    need_program("fc-match", "fontconfig")
    text, face = annotate.drawable("Straße, Škoda")
    assert text == "Straße, Škoda"
    assert face != annotate.BUILT_IN
    assert annotate.drawable("tabby, tabby cat") == ("tabby, tabby cat", annotate.BUILT_IN)


def test_characters_that_no_font_has_are_written_as_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotate, "system_face", lambda characters: annotate.BUILT_IN)
    assert annotate.drawable("Straße")[0] == r"Stra\xdfe"
    assert annotate.drawable("猫\ncat \udcff\u202e")[0] == r"\u732b cat \udcff\u202e"


def test_without_fontconfig_the_built_in_font_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    annotate.system_face.cache_clear()
    try:
        assert annotate.drawable("ß") == (r"\xdf", annotate.BUILT_IN)
    finally:
        annotate.system_face.cache_clear()


@pytest.mark.parametrize(
    ("file_format", "name", "written", "becomes"),
    [
        ("JPEG", "a/b/cat.JPG", "a/b/cat.JPG", "JPEG"),
        ("JPEG", "cat", "cat.jpg", "JPEG"),
        ("JPEG", "cat.png", "cat.png.jpg", "JPEG"),
        ("PNG", "cat.png", "cat.png", "PNG"),
        ("PNG", "cat.jpg", "cat.jpg.png", "PNG"),
        ("WEBP", "cat.webp", "cat.webp.png", "PNG"),
    ],
)
def test_a_jpeg_stays_one_and_the_rest_becomes_png(
    tmp_path: Path, file_format: str, name: str, written: str, becomes: str
) -> None:
    photo = noise(320, 240)
    path = write_copy(encoded(photo, file_format), RESULT, tmp_path, PurePath(name))
    assert path == tmp_path / written
    assert files_below(tmp_path) == [written]
    with Image.open(path) as copy:
        assert (copy.format, copy.mode, copy.size) == (becomes, "RGB", (320, 240))
        if becomes == "JPEG":
            with Image.open(BytesIO(encoded(photo, "JPEG", quality=90))) as reference:
                assert vars(copy)["quantization"] == vars(reference)["quantization"]


STORED = {  # the EXIF orientation -> how a file of that orientation holds the upright picture
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.parametrize("orientation", STORED)
def test_a_copy_is_upright(tmp_path: Path, orientation: int) -> None:
    upright = Image.new("RGB", (320, 640), "black")
    upright.paste("white", (0, 0, 100, 100))  # above the plate
    turn = STORED[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = encoded(upright if turn is None else upright.transpose(turn), "PNG", exif=exif)
    with Image.open(write_copy(file, RESULT, tmp_path, PurePath("a.png"))) as copy:
        np.testing.assert_array_equal(np.asarray(copy)[:250], np.asarray(upright)[:250])
        assert copy.getexif().get(0x0112, 1) == 1


def test_sixteen_bits_are_not_clipped(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 300 * 300).astype(np.uint16).reshape(300, 300)
    with Image.open(write_copy(encoded(Image.fromarray(ramp), "PNG"), RESULT, tmp_path, PurePath("a.png"))) as copy:
        top = np.asarray(copy)[:60, :, 0]
    np.testing.assert_allclose(top, ramp[:60] / 257, atol=1)  # one level: rounded down here


@pytest.mark.parametrize(
    "file", [b"", b"no image", encoded(noise(300, 300), "PNG")[:5000]], ids=["empty", "text", "cut"]
)
def test_what_cannot_be_opened_writes_nothing(tmp_path: Path, file: bytes) -> None:
    with pytest.raises(UnreadableImageError, match="expected an image"):
        write_copy(file, FAILURE, tmp_path / "out", PurePath("a.png"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../a.png", "b/../../a.png", "/tmp/a.png", "link/a.png"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match=r"name: expected a path within .*, got "):
        write_copy(encoded(noise(9, 9), "PNG"), RESULT, folder, PurePath(name))
    assert files_below(tmp_path) == []


def test_no_file_is_ever_overwritten(tmp_path: Path) -> None:
    photo = encoded(noise(300, 300), "PNG")
    (tmp_path / "a.png").write_bytes(b"precious")
    with pytest.raises(FileExistsError, match=r"a\.png: expected no file of that name"):
        write_copy(photo, RESULT, tmp_path, PurePath("a.png"))
    assert (tmp_path / "a.png").read_bytes() == b"precious"
    original = tmp_path / "b.png"
    original.write_bytes(photo)
    with pytest.raises(FileExistsError, match=r"b\.png: expected no file of that name"):
        write_copy(original, RESULT, tmp_path, PurePath("b.png"), replace=True)
    assert original.read_bytes() == photo


def test_of_two_copies_of_one_name_at_the_same_time_one_is_refused(tmp_path: Path) -> None:
    photos = [encoded(noise(300, 300 + i), "PNG") for i in range(8)]

    def written(photo: bytes) -> bool:
        try:
            write_copy(photo, RESULT, tmp_path, PurePath("a.png"))
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(written, photos)) == 1
    assert files_below(tmp_path) == ["a.png"]


def test_a_broken_run_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save: Callable[..., None] = Image.Image.save

    def save_half(image: Image.Image, path: Path, *arguments: object, **options: object) -> None:
        save(image, path, *arguments, **options)
        path.write_bytes(path.read_bytes()[:500])
        raise KeyboardInterrupt

    photo = encoded(noise(300, 300), "PNG")
    monkeypatch.setattr(Image.Image, "save", save_half)
    with pytest.raises(KeyboardInterrupt):
        write_copy(photo, RESULT, tmp_path, PurePath("a.png"))
    assert files_below(tmp_path) == []


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_odd_files_give_a_whole_copy_or_none(tmp_path: Path, shared_odd: list[Path]) -> None:
    copies = 0
    for path in shared_odd:
        try:
            copy = write_copy(path, FAILURE, tmp_path, PurePath(path.name))
        except UnreadableImageError:
            continue
        copies += 1
        with Image.open(copy) as image:
            image.load()
            assert np.asarray(image.convert("RGB")).size
    assert copies > len(shared_odd) / 2
    assert len(files_below(tmp_path)) == copies
