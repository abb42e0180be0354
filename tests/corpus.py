"""Valid image files of every format, variant and odd size: the same ones in every run, one in memory at a time."""

import functools
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, PngImagePlugin

from server.installation import package_folder
from tests import writers
from tests.writers import encoded, gradient

SIZES = [(1, 1), (1, 7), (7, 1), (17, 11), (61, 43), (224, 224), (256, 256), (257, 300), (500, 375), (375, 500)]
SIZES += [(1000, 3), (3, 1000), (1500, 1000), (231, 504)]  # width x height
ORIENTATION = 0x0112
ORIENTATIONS = range(1, 9)
MASKS_565, MASKS_555 = [0xF800, 0x7E0, 0x1F], [0x7C00, 0x3E0, 0x1F]
MASKS_8888 = [0xFF0000, 0xFF00, 0xFF, 0xFF000000]
XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description rdf:about="" xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="{}"/>'
    "</rdf:RDF></x:xmpmeta>"
)


@dataclass(frozen=True)
class Sample:
    name: str  # its format, a hyphen, its variant, its size; good as the name of a file
    file: bytes
    # Where pixels stand as they are, a tail may be zeros: a file cut short and padded with zeros is as valid as before.
    padding_hides_truncation: bool

    @property
    def format(self) -> str:
        return self.name.split("-")[0]


@dataclass(frozen=True)
class Recipe:
    """How to make one sample, so that its name and size are known without the work."""

    name: str
    pixels: int  # width x height
    make: Callable[[], bytes]
    padding_hides_truncation: bool = False

    def sample(self) -> Sample:
        return Sample(self.name, self.make(), self.padding_hides_truncation)


def corpus() -> Iterator[Sample]:
    return (recipe.sample() for recipe in recipes())


def recipes() -> list[Recipe]:
    formats = [jpeg(), png(), webp(), gif(), tiff(), bmp(), avif(), pnm()]
    return [recipe for format in formats for recipe in format] + list(large())


# Pictures


@dataclass(frozen=True)
class Picture:
    """What to draw and how large; drawn when a file is made of it."""

    content: str
    width: int
    height: int

    def rgb(self) -> npt.NDArray[np.uint8]:
        if self.content == "gradient":
            return gradient(self.width, self.height)
        if self.content == "noise":
            seed = self.width * 10_000 + self.height
            return np.random.default_rng(seed).integers(0, 256, (self.height, self.width, 3), dtype=np.uint8)
        if self.content == "text":
            return _text(self.width, self.height)
        return np.asarray(_photo(self.content).resize((self.width, self.height), Image.Resampling.BILINEAR))

    def image(self, mode: str = "RGB") -> Image.Image:
        image = Image.fromarray(self.rgb())
        if mode == "P":
            return image.quantize(64, dither=Image.Dither.NONE)
        if mode == "CMYK":
            return Image.fromarray(np.ascontiguousarray(self.four_channels()), "CMYK")
        if mode in ("RGBA", "LA"):
            image.putalpha(Image.fromarray(self.four_channels()[:, :, 3]))
        return image.convert(mode)

    def four_channels(self) -> npt.NDArray[np.uint8]:
        """The picture and a fourth channel that differs from the others: alpha, or the black of CMYK."""
        rgb = self.rgb()
        return np.dstack([rgb, rgb[::-1, ::-1, 1] // 2 + 64])

    def deep(self, depth: int, channels: int) -> npt.NDArray[np.uint16]:
        """Samples of 1 to 16 bits with all of their levels: 8 bits from the picture, below them a little noise."""
        picture = self.four_channels()[:, :, [0] if channels == 1 else [0, 3] if channels == 2 else range(channels)]
        noise = np.random.default_rng(0).integers(0, 256, picture.shape, dtype=np.uint16)
        return ((picture.astype(np.uint16) << 8 | noise) >> (16 - depth)).astype(np.uint16)


def _text(width: int, height: int) -> npt.NDArray[np.uint8]:
    """A scanned page, blue ink on yellow paper, repeated to fill the size."""
    page = np.asarray(_photo("page.png").convert("L"))
    shape = (-(-height // page.shape[0]), -(-width // page.shape[1]))
    ink = np.tile(page, shape)[:height, :width] > 140
    return np.where(ink[:, :, None], [250, 240, 190], [20, 30, 160]).astype(np.uint8)


@functools.cache
def _photo(name: str) -> Image.Image:
    package = package_folder("skimage")
    assert package is not None
    return Image.open(package / "data" / name).convert("RGB")


COFFEE, TEXT = Picture("coffee.png", 61, 43), Picture("text", 61, 43)
GRADIENT, NOISE, TINY = Picture("gradient", 61, 43), Picture("noise", 61, 43), Picture("gradient", 17, 11)


def saved(picture: Picture, format: str, mode: str = "RGB", **options: Any) -> bytes:
    return encoded(picture.image(mode), format, **options)


def saved_by_opencv(pixels: npt.NDArray[Any], extension: str, *options: int) -> bytes:
    done, file = cv2.imencode(extension, pixels, options)
    assert done
    return file.tobytes()


def opencv_16(picture: Picture, extension: str, channels: int) -> bytes:
    return saved_by_opencv(picture.deep(16, channels)[:, :, [2, 1, 0, 3][:channels]], extension)


def animated(pictures: list[Picture], format: str, mode: str = "RGB", **options: Any) -> bytes:
    first, *others = [picture.image(mode) for picture in pictures]
    return encoded(first, format, save_all=True, append_images=others, duration=100, **options)


def exif(orientation: int, order: str = "<", tag: int = ORIENTATION) -> bytes:
    metadata = Image.Exif()
    metadata.endian = order
    metadata[tag] = orientation
    return metadata.tobytes()


def recipe(
    name: str, picture: Picture, make: Callable[..., bytes], *arguments: Any, hides: bool = False, **options: Any
) -> Recipe:
    """`make(picture, *arguments, **options)`, when it is wanted."""
    full_name = f"{name}-{picture.width}x{picture.height}"
    make_file = functools.partial(make, picture, *arguments, **options)
    return Recipe(full_name, picture.width * picture.height, make_file, hides)


def at_all_sizes(format: str, variants: dict[str, dict[str, Any]], hides: bool = False) -> Iterator[Recipe]:
    """Every size once, contents and variants in turn."""
    contents = cycle(["coffee.png", "gradient", "text", "rocket.jpg", "noise", "astronaut.png", "chelsea.png"])
    for (width, height), content, (variant, options) in zip(
        SIZES, contents, cycle(variants.items())
    ):  # two are endless
        name = f"{format}-{variant}-{content.split('.')[0]}"
        yield recipe(name, Picture(content, width, height), saved, format.upper(), hides=hides, **options)


# Formats


def jpeg() -> Iterator[Recipe]:
    yield from at_all_sizes("jpeg", {"usual": {}, "progressive": {"progressive": True}, "444": {"subsampling": 0}})
    for mode, progressive in product(["RGB", "L", "CMYK"], [False, True]):
        kind = "progressive" if progressive else "baseline"
        yield recipe(f"jpeg-{mode.lower()}-{kind}", COFFEE, saved, "JPEG", mode, progressive=progressive)
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        yield recipe(f"jpeg-{subsampling.replace(':', '')}", COFFEE, saved, "JPEG", subsampling=subsampling)
    for ratio in ("411", "440"):
        yield recipe(f"jpeg-{ratio}", COFFEE, jpeg_subsampled, getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{ratio}"))
    for quality in (1, 30, 100):
        yield recipe(f"jpeg-quality-{quality}", COFFEE, saved, "JPEG", quality=quality)
    for orientation, order in product(ORIENTATIONS, "<>"):
        side = "intel" if order == "<" else "motorola"
        yield recipe(f"jpeg-exif-{orientation}-{side}", COFFEE, saved, "JPEG", exif=exif(orientation, order))
    for orientation in ORIENTATIONS:
        yield recipe(f"jpeg-xmp-{orientation}", COFFEE, saved, "JPEG", xmp=XMP.format(orientation).encode())
    yield recipe("jpeg-exif-before-xmp", COFFEE, saved, "JPEG", exif=exif(3), xmp=XMP.format(6).encode())
    yield recipe("jpeg-exif-0", COFFEE, saved, "JPEG", exif=exif(0))
    yield recipe("jpeg-exif-9", COFFEE, saved, "JPEG", exif=exif(9))
    yield recipe("jpeg-exif-cmyk", COFFEE, saved, "JPEG", "CMYK", exif=exif(6))
    yield recipe("jpeg-restarts", COFFEE, saved, "JPEG", restart_marker_blocks=1)
    yield recipe("jpeg-restart-rows", NOISE, saved, "JPEG", restart_marker_rows=1)
    yield recipe("jpeg-stored-as-rgb", COFFEE, saved, "JPEG", keep_rgb=True)
    yield recipe("jpeg-comment", COFFEE, saved, "JPEG", comment=b"a comment \xff\xd9 with a marker in it")
    yield recipe("jpeg-profile", COFFEE, saved, "JPEG", icc_profile=bytes(range(256)) * 600)  # in three segments
    yield recipe("jpeg-film-after-it", COFFEE, jpeg_and_more)
    for progressive in (False, True):
        yield recipe(f"jpeg-ycck-{'progressive' if progressive else 'baseline'}", COFFEE, jpeg_ycck, progressive)


def jpeg_subsampled(picture: Picture, factor: int) -> bytes:
    return saved_by_opencv(picture.rgb()[:, :, ::-1], ".jpg", cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor)


def jpeg_and_more(picture: Picture) -> bytes:
    return saved(picture, "JPEG") + b"ftypmp42 a film"


def jpeg_ycck(picture: Picture, progressive: bool) -> bytes:
    """Pillow writes no YCCK. It inverts the four channels of CMYK and stores them as they are, so that those of YCCK
    can be handed to it; what then stands in Adobe's marker, 0 for CMYK, is changed to 2 for YCCK."""
    luma_chroma = np.asarray(picture.image().convert("YCbCr"))
    channels = np.dstack([255 - luma_chroma, picture.four_channels()[:, :, 3]])
    file = encoded(Image.fromarray(channels, "CMYK"), "JPEG", progressive=progressive)
    transform = file.index(b"Adobe") + 11
    return file[:transform] + b"\2" + file[transform + 1 :]


def png() -> Iterator[Recipe]:
    yield from at_all_sizes("png", {mode.lower(): {"mode": mode} for mode in ("RGB", "RGBA", "P", "L")})
    for mode in ("RGB", "RGBA", "L", "LA", "P", "1"):
        yield recipe(f"png-pillow-{mode.lower()}", COFFEE, saved, "PNG", mode)
    depths = {"gray": [1, 2, 4, 8, 16], "palette": [1, 2, 4, 8]}
    for colour, picture, interlaced in product(writers.PNG_COLOUR_TYPES, [COFFEE, TINY], [False, True]):
        for depth in depths.get(colour, [8, 16]):
            name = f"png-{colour}-{depth}-{'interlaced' if interlaced else 'straight'}"
            yield recipe(name, picture, png_of, colour, depth, interlaced)
    for width, height in [(1, 1), (2, 3), (5, 1), (1, 7), (1000, 3)]:  # some of Adam7's seven passes are empty
        yield recipe("png-gray-2-interlaced", Picture("noise", width, height), png_of, "gray", 2, True)
    for colour, depth in [("gray", 8), ("gray", 16), ("rgb", 8), ("rgb", 16), ("palette", 8)]:
        yield recipe(f"png-{colour}-{depth}-transparent-colour", COFFEE, png_of, colour, depth, transparent=True)
    yield recipe("png-gamma", COFFEE, png_of, "rgb", 8, chunks=writers.png_chunk(b"gAMA", struct.pack(">I", 100_000)))
    yield recipe(
        "png-compressed-text",
        COFFEE,
        png_of,
        "rgb",
        8,
        chunks=writers.png_chunk(b"zTXt", b"a\0\0" + zlib.compress(b"x")),
    )
    yield recipe("png-16-opencv", COFFEE, opencv_16, ".png", 3)
    yield recipe("png-16-alpha-opencv", COFFEE, opencv_16, ".png", 4)
    yield recipe("png-many-data-chunks", COFFEE, png_in_chunks)
    for orientation in ORIENTATIONS:
        yield recipe(f"png-exif-{orientation}", COFFEE, saved, "PNG", exif=exif(orientation))
    yield recipe("png-exif-6-motorola", COFFEE, saved, "PNG", exif=exif(6, ">"))
    for orientation, packed in product([3, 6], [False, True]):
        yield recipe(f"png-xmp-{orientation}{'-packed' * packed}", COFFEE, png_xmp, orientation, packed)
        yield recipe(f"png-raw-profile-{orientation}{'-packed' * packed}", COFFEE, png_raw_profile, orientation, packed)
    frames = [COFFEE, NOISE, TEXT]
    yield recipe("png-animated", COFFEE, lambda _: animated(frames, "PNG"))
    yield recipe("png-animated-palette", COFFEE, lambda _: animated(frames, "PNG", "P"))
    yield recipe("png-animated-alpha", COFFEE, lambda _: animated(frames, "PNG", "RGBA", blend=1, disposal=2))
    yield recipe("png-animated-other-first", COFFEE, lambda _: animated(frames, "PNG", default_image=True))


def png_of(
    picture: Picture, colour: str, depth: int, interlaced: bool = False, transparent: bool = False, chunks: bytes = b""
) -> bytes:
    channels = {"gray": 1, "rgb": 3, "palette": 1, "gray-alpha": 2, "rgb-alpha": 4}[colour]
    samples = picture.deep(depth, channels)
    if colour == "palette":
        chunks += writers.png_chunk(b"PLTE", palette(depth).tobytes())
    if transparent:
        key = bytes(range(0, 256, 16)) if colour == "palette" else samples[0, 0].astype(">u2").tobytes()
        chunks += writers.png_chunk(b"tRNS", key)
    return writers.png(samples, depth, colour, interlaced=interlaced, chunks=chunks)


def palette(depth: int) -> npt.NDArray[np.uint8]:
    """Colours (2 ** depth, 3) without an order."""
    return np.random.default_rng(depth).integers(0, 256, (2**depth, 3), dtype=np.uint8)


def png_in_chunks(picture: Picture) -> bytes:
    """The data in pieces of 100 bytes, an empty one among them."""
    file = saved(picture, "PNG")
    start, end = file.index(b"IDAT") + 4, file.index(b"IEND") - 8
    pieces = [b"", *(file[at : min(at + 100, end)] for at in range(start, end, 100))]
    return file[: start - 8] + b"".join(writers.png_chunk(b"IDAT", piece) for piece in pieces) + file[end + 4 :]


def png_xmp(picture: Picture, orientation: int, packed: bool) -> bytes:
    text = PngImagePlugin.PngInfo()
    text.add_itxt("XML:com.adobe.xmp", XMP.format(orientation), zip=packed)
    return saved(picture, "PNG", pnginfo=text)


def png_raw_profile(picture: Picture, orientation: int, packed: bool) -> bytes:
    """EXIF as ImageMagick wrote it before PNG had a chunk for it: a text of hexadecimal digits."""
    data = exif(orientation)
    text = PngImagePlugin.PngInfo()
    text.add_text("Raw profile type exif", f"\nexif\n{len(data):8}\n{data.hex()}\n", zip=packed)
    return saved(picture, "PNG", pnginfo=text)


def webp() -> Iterator[Recipe]:
    yield from at_all_sizes("webp", {"lossy": {}, "lossless": {"lossless": True}, "alpha": {"mode": "RGBA"}})
    for mode, lossless in product(["RGB", "RGBA", "L", "P"], [False, True]):
        name = f"webp-{mode.lower()}-{'lossless' if lossless else 'lossy'}"
        yield recipe(name, COFFEE, saved, "WEBP", mode, lossless=lossless)
    yield recipe("webp-rgba-lossy-alpha-quality", COFFEE, saved, "WEBP", "RGBA", alpha_quality=20)
    yield recipe("webp-exact", GRADIENT, saved, "WEBP", "RGBA", lossless=True, exact=True)
    for quality in (0, 100):
        yield recipe(f"webp-quality-{quality}", COFFEE, saved, "WEBP", quality=quality)
    for orientation in ORIENTATIONS:
        yield recipe(f"webp-exif-{orientation}", COFFEE, saved, "WEBP", exif=exif(orientation))
    for orientation in (3, 6):
        yield recipe(f"webp-xmp-{orientation}", COFFEE, saved, "WEBP", xmp=XMP.format(orientation).encode())
    yield recipe("webp-profile", COFFEE, saved, "WEBP", icc_profile=bytes(range(256)) * 4)
    frames = [COFFEE, NOISE, TEXT]
    yield recipe("webp-animated", COFFEE, lambda _: animated(frames, "WEBP"))
    yield recipe("webp-animated-lossless", COFFEE, lambda _: animated(frames, "WEBP", lossless=True))
    yield recipe("webp-animated-alpha", COFFEE, lambda _: animated(frames, "WEBP", "RGBA"))
    yield recipe("webp-animated-exif", COFFEE, lambda _: animated(frames, "WEBP", exif=exif(6)))
    for lossless in (False, True):
        name = f"webp-animated-small-first-{'lossless' if lossless else 'lossy'}"
        yield recipe(name, COFFEE, webp_with_small_first_frame, lossless)


def webp_with_small_first_frame(picture: Picture, lossless: bool) -> bytes:
    first, second = (saved(frame, "WEBP", lossless=lossless) for frame in (TINY, NOISE))
    frames = [(first, 10, 6, TINY.width, TINY.height), (second, 0, 0, NOISE.width, NOISE.height)]
    return writers.webp_animation(frames, picture.width, picture.height)


def gif() -> Iterator[Recipe]:
    interlaced, straight = {"mode": "P", "interlace": 1}, {"mode": "L", "interlace": 0}
    yield from at_all_sizes("gif", {"interlaced": interlaced, "straight": straight})
    for colours in (2, 4, 16, 256):
        yield recipe(f"gif-{colours}-colours", COFFEE, gif_of_colours, colours)
    for interlace in (0, 1):
        yield recipe(f"gif-interlace-{interlace}", COFFEE, saved, "GIF", "P", interlace=interlace)
    yield recipe("gif-transparent", COFFEE, saved, "GIF", "P", transparency=3)
    yield recipe("gif-comment", COFFEE, saved, "GIF", "P", comment=b"a comment of more than one block " * 20)
    yield recipe("gif-bits", TEXT, saved, "GIF", "1")
    yield recipe("gif-partial-first-frame", COFFEE, gif_with_partial_frame)
    yield recipe("gif-partial-first-frame-transparent", COFFEE, gif_with_partial_frame, transparency=3)
    frames = [COFFEE, NOISE, TEXT]
    for disposal in (0, 1, 2, 3):
        yield recipe(
            f"gif-animated-{disposal}",
            COFFEE,
            lambda _, disposal=disposal: animated(frames, "GIF", "P", disposal=disposal),
        )
    yield recipe("gif-animated-alpha", COFFEE, lambda _: animated(frames, "GIF", "RGBA", loop=0))


def gif_of_colours(picture: Picture, colours: int) -> bytes:
    return encoded(picture.image().quantize(colours), "GIF")


def gif_with_partial_frame(picture: Picture, **options: int) -> bytes:
    return writers.gif_on_canvas(saved(TINY, "GIF", "P", **options), picture.width, picture.height, 20, 9)


def tiff() -> Iterator[Recipe]:
    by_name = {"lzw": "tiff_lzw", "deflate": "tiff_adobe_deflate", "packbits": "packbits", "jpeg": "jpeg"}
    yield from at_all_sizes("tiff", {name: {"compression": code} for name, code in by_name.items()})
    for mode, compression in product(["RGB", "RGBA", "L", "LA", "P", "CMYK"], ["tiff_lzw", "tiff_deflate", "packbits"]):
        yield recipe(f"tiff-pillow-{mode.lower()}-{compression}", COFFEE, saved, "TIFF", mode, compression=compression)
    for mode in ("RGB", "RGBA", "L", "LA", "P", "CMYK", "1"):
        yield recipe(f"tiff-pillow-{mode.lower()}-raw", COFFEE, saved, "TIFF", mode, hides=True)
    for mode, quality in product(["RGB", "L", "CMYK"], [50, 95]):
        name = f"tiff-pillow-{mode.lower()}-jpeg-{quality}"
        yield recipe(name, COFFEE, saved, "TIFF", mode, compression="jpeg", quality=quality)
    for compression in ("group3", "group4", "tiff_ccitt", "tiff_lzw", "packbits", "tiff_adobe_deflate"):
        yield recipe(f"tiff-bits-{compression}", TEXT, saved, "TIFF", "1", compression=compression)
    for orientation, compression in product(ORIENTATIONS, ["raw", "tiff_lzw"]):
        options: dict[str, Any] = {
            "compression": compression,
            "tiffinfo": {ORIENTATION: orientation},
            "hides": compression == "raw",
        }
        yield recipe(f"tiff-orientation-{orientation}-{compression}", COFFEE, saved, "TIFF", **options)
    yield recipe("tiff-group4-orientation-6", TEXT, saved, "TIFF", "1", compression="group4", tiffinfo={ORIENTATION: 6})
    yield recipe("tiff-pillow-big", COFFEE, saved, "TIFF", big_tiff=True, hides=True)
    for compression in ("raw", "tiff_lzw"):
        options = {"compression": compression, "hides": compression == "raw"}
        yield recipe(f"tiff-pages-{compression}", COFFEE, tiff_pages, **options)
    yield recipe("tiff-opencv-16", COFFEE, opencv_16, ".tiff", 3)
    for compression, predictor in product(TIFF_COMPRESSIONS, [False, True]):
        yield from _tiff_layouts(compression, predictor)
    for order, colour in product("<>", TIFF_COLOURS):
        for depth in TIFF_COLOURS[colour][2]:
            name = f"tiff-{colour}-{depth}-{'little' if order == '<' else 'big'}-endian"
            yield recipe(name, COFFEE, tiff_of, colour, depth, order=order, hides=True)
    for tile in (None, 16):
        for colour in ("gray", "ycbcr"):
            name = f"tiff-jpeg-{colour}-{'tiles' if tile else 'strips'}"
            yield recipe(name, COFFEE, tiff_of, colour, 8, "jpeg", tile=tile)


def tiff_pages(_: Picture, **options: Any) -> bytes:
    first, *others = [picture.image() for picture in (COFFEE, TINY, TEXT)]
    return encoded(first, "TIFF", save_all=True, append_images=others, **options)


def jpeg_block(samples: writers.Samples, _: bytes) -> bytes:
    """A strip or tile as a JPEG file without subsampling."""
    image = Image.fromarray(samples[:, :, 0] if samples.shape[2] == 1 else samples)
    return encoded(image, "JPEG", subsampling=0, quality=90)


TIFF_COMPRESSIONS: dict[str, tuple[int, writers.Compress]] = {
    "raw": (1, lambda _, data: data),
    "lzw": (5, writers.lzw),
    "deflate": (8, writers.deflate),
    "packbits": (32773, writers.packbits),
    "jpeg": (7, jpeg_block),
}
# Channels, photometric interpretation, bits a sample.
TIFF_COLOURS = {
    "white-is-zero": (1, 0, [1, 8]),
    "gray": (1, writers.TIFF_GRAY, [1, 2, 4, 8, 16]),
    "gray-alpha": (2, writers.TIFF_GRAY, [8]),
    "palette": (1, writers.TIFF_PALETTE, [1, 2, 4, 8]),
    "rgb": (3, writers.TIFF_RGB, [8, 16]),
    "rgb-alpha": (4, writers.TIFF_RGB, [8, 16]),
    "rgb-premultiplied": (4, writers.TIFF_RGB, [8]),
    "cmyk": (4, writers.TIFF_CMYK, [8, 16]),
    "ycbcr": (3, writers.TIFF_YCBCR, []),
}


def _tiff_layouts(compression: str, predictor: bool) -> Iterator[Recipe]:
    """Strips and tiles, chunky and planar, 8 and 16 bits, both byte orders, classic and big, directory first, last."""
    if compression == "jpeg" or (predictor and compression not in ("lzw", "deflate")):
        return
    for tile, planar, depth in product([None, 16, 48], [False, True], [8, 16]):
        order = ">" if tile == 16 or depth == 16 else "<"
        options: dict[str, Any] = {
            "tile": tile,
            "planar": planar,
            "predictor": predictor,
            "order": order,
            "directory_last": tile == 48,
        }
        options["big"] = planar and order == "<"  # Pillow knows no big-endian BigTIFF
        layout = f"{f'tiles-{tile}' if tile else 'strips'}{'-planar' * planar}{'-predictor' * predictor}"
        hides = compression == "raw" and tile != 48
        yield recipe(
            f"tiff-{compression}-{depth}-{layout}", COFFEE, tiff_of, "rgb", depth, compression, hides=hides, **options
        )


def tiff_of(picture: Picture, colour: str, depth: int, compression: str = "raw", **options: Any) -> bytes:
    channels, photometric, _ = TIFF_COLOURS[colour]
    code, compress = TIFF_COMPRESSIONS[compression]
    samples = picture.deep(depth, channels).astype(np.uint16 if depth == 16 else np.uint8)
    tags: dict[int, tuple[str, Sequence[int]]] = {}
    if colour == "palette":
        levels = palette(depth).T.ravel().astype(int)
        tags[writers.TIFF_COLOUR_MAP] = ("H", (levels * 257).tolist())
    if colour.endswith(("alpha", "premultiplied")):
        tags[writers.TIFF_EXTRA_SAMPLES] = ("H", [2 if colour.endswith("alpha") else 1])
    if colour == "rgb-premultiplied":
        samples[:, :, :3] = np.minimum(samples[:, :, :3], samples[:, :, 3:])
    if colour == "ycbcr":
        tags[writers.TIFF_SUBSAMPLING] = ("H", [1, 1])
    return writers.tiff(
        samples, depth, photometric=photometric, compression=code, compress=compress, tags=tags, **options
    )


def bmp() -> Iterator[Recipe]:
    yield from at_all_sizes("bmp", {mode.lower(): {"mode": mode} for mode in ("RGB", "P", "L", "1")}, hides=True)
    for header_bytes, top_down in product([12, 40, 108, 124], [False, True]):
        if header_bytes == 12 and top_down:
            continue  # its height has no sign
        suffix = f"{header_bytes}{'-top-down' * top_down}"
        options: dict[str, Any] = {"header_bytes": header_bytes, "top_down": top_down, "hides": True}
        for depth in (1, 4, 8, 24):
            yield recipe(f"bmp-{depth}-header-{suffix}", COFFEE, bmp_of, depth, **options)
    for name, masks in {"565": MASKS_565, "555": MASKS_555}.items():
        for header_bytes in (40, 108, 124):
            options = {"masks": masks, "compression": 3, "header_bytes": header_bytes, "hides": True}
            yield recipe(f"bmp-16-{name}-header-{header_bytes}", COFFEE, bmp_of, 16, **options)
    yield recipe("bmp-16-without-masks", COFFEE, bmp_of, 16, hides=True)
    yield recipe("bmp-32", COFFEE, bmp_of, 32, hides=True)
    for header_bytes in (108, 124):
        options = {"masks": MASKS_8888, "compression": 3, "header_bytes": header_bytes, "hides": True}
        yield recipe(f"bmp-32-alpha-header-{header_bytes}", COFFEE, bmp_of, 32, **options)
    for depth, picture in product([4, 8], [COFFEE, TEXT, TINY, Picture("text", 600, 20)]):
        yield recipe(f"bmp-run-lengths-{depth}-{picture.content.split('.')[0]}", picture, bmp_of, depth, packed=True)


def bmp_of(picture: Picture, depth: int, packed: bool = False, masks: list[int] | None = None, **options: Any) -> bytes:
    if depth == 16:
        red, green, blue = (picture.rgb()[:, :, channel].astype(np.uint16) for channel in range(3))
        values = red >> 3 << 11 | green >> 2 << 5 | blue >> 3
        if masks != MASKS_565:
            values = red >> 3 << 10 | green >> 3 << 5 | blue >> 3
        return writers.bmp(values[:, :, None], 16, masks=masks or (), **options)
    if depth > 16:
        channels = picture.four_channels()[:, :, [2, 1, 0, 3][: depth // 8]]
        return writers.bmp(channels, depth, masks=masks or (), **options)
    indices = picture.deep(depth, 1)
    if packed:
        rows = writers.bmp_run_lengths(indices[:, :, 0].astype(np.uint8), depth)
        return writers.bmp(rows, depth, palette=palette(depth), compression={8: 1, 4: 2}[depth])
    return writers.bmp(indices, depth, palette=palette(depth), **options)


FAST: dict[str, Any] = {"speed": 10, "max_threads": 1}  # of AVIF's encoder


def avif() -> Iterator[Recipe]:
    yield from at_all_sizes("avif", {"opaque": FAST, "alpha": {"mode": "RGBA", **FAST}})
    for mode in ("RGB", "RGBA", "L", "LA"):
        yield recipe(f"avif-{mode.lower()}", COFFEE, saved, "AVIF", mode, **FAST)
    for subsampling in ("4:4:4", "4:2:2", "4:2:0", "4:0:0"):
        yield recipe(f"avif-{subsampling.replace(':', '')}", COFFEE, saved, "AVIF", subsampling=subsampling, **FAST)
    for quality in (0, 100):
        yield recipe(f"avif-quality-{quality}", COFFEE, saved, "AVIF", quality=quality, **FAST)
    yield recipe("avif-limited-range", COFFEE, saved, "AVIF", range="limited", **FAST)
    for orientation in ORIENTATIONS:  # Pillow writes it as AVIF's own rotation and mirroring
        yield recipe(f"avif-rotated-{orientation}", COFFEE, saved, "AVIF", exif=exif(orientation), **FAST)
    yield recipe("avif-exif-only", COFFEE, avif_exif_only)
    yield recipe("avif-animated", COFFEE, lambda _: animated([COFFEE, NOISE, TEXT], "AVIF", **FAST))
    yield recipe("avif-animated-alpha", COFFEE, lambda _: animated([COFFEE, NOISE, TEXT], "AVIF", "RGBA", **FAST))


def avif_exif_only(picture: Picture) -> bytes:
    """With an orientation in its EXIF and no rotation of AVIF's own: Pillow would move it there, so another tag is
    written and then renamed. Such a file stays as it is: ISO/IEC 23000-22 makes EXIF's orientation a remark."""
    tag = 0x0113
    file = saved(picture, "AVIF", exif=exif(6, tag=tag), **FAST)
    written, wanted = struct.pack("<HHIH", tag, 3, 1, 6), struct.pack("<HHIH", ORIENTATION, 3, 1, 6)
    assert file.count(written) == 1
    return file.replace(written, wanted)


PNM_BITS = "P{magic}\n{width} {height}\n"
PNM_COMMENTS = "P{magic} # a comment\n# another\n {width}\t# 3 4\n{height}\n# 7\n{maximum}\n"


def pnm() -> Iterator[Recipe]:
    for (width, height), content in zip(SIZES, cycle(["gradient", "coffee.png", "noise"])):  # endless
        yield recipe(f"pnm-{content.split('.')[0]}", Picture(content, width, height), pnm_of, 6, hides=True)
    for magic, picture in product(range(1, 7), [COFFEE, TINY]):
        yield recipe(f"pnm-p{magic}", picture, pnm_of, magic, hides=magic > 3)
    for magic, maximum in product([2, 3, 5, 6], [1, 15, 100, 254, 1023, 65535]):
        yield recipe(f"pnm-p{magic}-maximum-{maximum}", TINY, pnm_of, magic, maximum, hides=magic > 3)
    for magic in (2, 3, 5, 6):
        yield recipe(f"pnm-p{magic}-comments", TINY, pnm_of, magic, header=PNM_COMMENTS, hides=magic > 3)


def pnm_of(picture: Picture, magic: int, maximum: int = 255, header: str = writers.PNM_HEADER) -> bytes:
    channels = 3 if magic in (3, 6) else 1
    samples = picture.deep(16, channels).astype(np.uint32)
    if magic in (1, 4):
        return writers.pnm(samples >> 15, magic, 1, PNM_BITS)
    return writers.pnm((samples * maximum + 32767) // 65535, magic, maximum, header)


def large() -> Iterator[Recipe]:
    """Photographs as cameras take them, and one that is larger."""
    photo = Picture("astronaut.png", 4000, 3000)
    yield recipe("jpeg-large", photo, saved, "JPEG", exif=exif(6))
    yield recipe("jpeg-large-progressive", photo, saved, "JPEG", progressive=True)
    yield recipe("png-large", photo, saved, "PNG", compress_level=1)
    yield recipe("webp-large", photo, saved, "WEBP", method=0)
    yield recipe("gif-large", photo, saved, "GIF", "L")
    yield recipe("tiff-large", photo, saved, "TIFF", compression="tiff_lzw")
    yield recipe("bmp-large", photo, saved, "BMP", hides=True)
    yield recipe("pnm-large", photo, saved, "PPM", hides=True)
    yield recipe("avif-large", Picture("astronaut.png", 2000, 1500), saved, "AVIF", **FAST)
    yield recipe("jpeg-largest", Picture("astronaut.png", 8000, 6000), saved, "JPEG")
