"""The file formats, a module each: from the bytes of a file to its Header, before any pixel is decoded."""

from ..errors import InvalidImageError
from . import avif, bmp, gif, jpeg, png, pnm, tiff, webp
from .header import Header as Header

READ = "JPEG, PNG, WebP, GIF, TIFF, BMP, AVIF or PNM"
# Known, and not read: by their first bytes.
UNSUPPORTED = {
    b"\0\0\1\0": "ICO",
    b"\0\0\0\x0cjP  ": "JPEG 2000",
    b"\xffO\xffQ": "JPEG 2000",
    b"\0\0\0\x0cJXL ": "JPEG XL",
    b"\xff\x0a": "JPEG XL",
    b"qoif": "QOI",
    b"DDS ": "DDS",
    b"8BPS": "PSD",
    b"%!PS": "EPS",
    b"%PDF": "PDF",
    b"v/1\1": "OpenEXR",
    b"#?RADIANCE": "Radiance HDR",
    b"P7\n": "PAM",
    b"PF\n": "PFM",
    b"Pf\n": "PFM",
}


def read_header(data: bytes) -> Header:
    """Read a file, with or without a batch's zeros after its end.

    Raises InvalidImageError: empty, not_an_image, truncated, corrupt or unsupported.
    """
    if data.startswith(jpeg.SIGNATURE):
        return jpeg.read(data)
    if data.startswith(png.SIGNATURE):
        return png.read(data)
    if webp.is_webp(data):
        return webp.read(data)
    if data.startswith(gif.SIGNATURES):
        return gif.read(data)
    if data.startswith(tiff.SIGNATURES):
        return tiff.read(data)
    if pnm.START.match(data):
        return pnm.read(data)
    if bmp.is_bmp(data):
        return bmp.read(data)
    if data[4:8] == b"ftyp":
        return avif.read(data)
    for signature, name in UNSUPPORTED.items():
        if data.startswith(signature):
            raise InvalidImageError("unsupported", f"expected a {READ} file, got {name}")
    content = data.rstrip(b"\0")
    if not content:
        raise InvalidImageError(
            "empty", f"expected an image file, got {len(data)} bytes{', all zeros' if data else ''}"
        )
    raise InvalidImageError(
        "not_an_image", f"expected a {READ} file, got {len(content)} bytes starting {content[:8].hex(' ')}"
    )
