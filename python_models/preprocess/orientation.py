"""How a camera was held: read from a file's EXIF or XMP, and undone."""

import re
import struct

import numpy as np
import numpy.typing as npt

from .opencv import cv2

ORIENTATION_TAG = 0x0112
# Of the types that Pillow takes the value in: the code of struct. Source: TIFF 6.0, section 2.
INTEGER_TYPES = {3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 13: "I"}
BYTE_ORDERS = {
    b"II*\0": "<",
    b"MM\0*": ">",
    b"II\0*": "<",
    b"MM*\0": ">",
}  # the last two are wrong, and Pillow reads them
EXIF_PREFIX = b"Exif\0\0"
XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([1-8])')


def read_orientation(exif: bytes = b"", xmp: bytes = b"") -> int:
    """Return EXIF's orientation, 1 to 8, or XMP's where EXIF has none; 1 is upright, and what is unreadable.

    Only this one tag is read: the libraries' readers copy every value, and a file may name the same megabytes as the
    value of each of thousands of tags.
    """
    value = exif_orientation(exif)
    if value is None:
        found = XMP_ORIENTATION.search(xmp)
        value = int(found[1]) if found else 1
    return value if 1 <= value <= 8 else 1


def exif_orientation(exif: bytes) -> int | None:
    """Find the tag in the first directory of EXIF, which is a TIFF file. Source: TIFF 6.0, section 2."""
    while exif.startswith(EXIF_PREFIX):
        exif = exif.removeprefix(EXIF_PREFIX)
    order = BYTE_ORDERS.get(exif[:4])
    if order is None or len(exif) < 8:
        return None
    (start,) = struct.unpack_from(f"{order}I", exif, 4)
    if start + 2 > len(exif):
        return None
    (entries,) = struct.unpack_from(f"{order}H", exif, start)
    for at in range(start + 2, min(start + 2 + 12 * entries, len(exif) - 11), 12):
        tag, kind, count = struct.unpack_from(f"{order}HHI", exif, at)
        if tag == ORIENTATION_TAG and kind in INTEGER_TYPES and count >= 1:
            return int(struct.unpack_from(order + INTEGER_TYPES[kind], exif, at + 8)[0])
    return None


def upright(image: npt.NDArray[np.uint8], orientation: int) -> npt.NDArray[np.uint8]:
    """Turn uint8 (H, W, 3) upright. Source: EXIF 2.32, 4.6.4, tag Orientation; TIFF 6.0, section 8."""
    match orientation:
        case 2:
            turned = cv2.flip(image, 1)
        case 3:
            turned = cv2.rotate(image, cv2.ROTATE_180)
        case 4:
            turned = cv2.flip(image, 0)
        case 5:
            turned = cv2.transpose(image)
        case 6:
            turned = cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE)
        case 7:
            turned = cv2.rotate(cv2.transpose(image), cv2.ROTATE_180)
        case 8:
            turned = cv2.rotate(image, cv2.ROTATE_90_COUNTERCLOCKWISE)
        case _:
            return image
    return turned.reshape(turned.shape[0], turned.shape[1], 3).astype(np.uint8, copy=False)
