"""The head of a picture's file, whole, cut short and hostile."""

import pytest

from backends.steps.pictures.header import BadPicture, PictureHeader, read_header
from support.pictures import file_of, gradient, png_head

FORMATS = ("JPEG", "PNG", "WEBP")


@pytest.mark.parametrize("format", FORMATS)
def test_format_and_size_are_read_from_the_head(format: str) -> None:
    assert read_header(file_of(gradient(37, 23), format)) == PictureHeader(
        format, 37, 23, 4 if format == "WEBP" else 1
    )


@pytest.mark.parametrize(
    "options", [{"lossless": True}, {"exif": b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x00\x00"}]
)
def test_every_kind_of_webp_says_its_size(options: dict[str, object]) -> None:
    assert read_header(file_of(gradient(37, 23), "WEBP", **options)).width == 37


def test_a_progressive_jpeg_with_a_preview_is_read() -> None:
    preview = file_of(gradient(8, 8), "JPEG")
    whole = file_of(gradient(64, 48), "JPEG", progressive=True, comment=preview)
    assert read_header(whole) == PictureHeader("JPEG", 64, 48, 2)
    four = file_of(gradient(64, 48).convert("CMYK"), "JPEG", progressive=True)
    assert read_header(four).weight == 3
    assert read_header(file_of(gradient(64, 48).convert("CMYK"), "JPEG")).weight == 1


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_is_cut_short_is_refused_wherever_it_ends(format: str) -> None:
    whole = file_of(gradient(37, 23), format)
    for end in range(len(whole) - 8):
        with pytest.raises(BadPicture):
            read_header(whole[:end])


def test_a_jpeg_cut_behind_its_preview_is_refused() -> None:
    preview = file_of(gradient(8, 8), "JPEG")
    whole = file_of(gradient(64, 48), "JPEG", comment=preview)
    with pytest.raises(BadPicture, match="is cut short: the JPEG file has no end after"):
        read_header(whole[:-20])


def test_other_bytes_are_named_by_how_they_begin() -> None:
    with pytest.raises(BadPicture, match="not a JPEG, PNG or WebP file: it begins with 47 49 46"):
        read_header(b"GIF89a....")


def test_a_jpeg_of_very_many_scans_is_refused() -> None:
    whole = file_of(gradient(16, 16), "JPEG")
    scan = whole[whole.index(b"\xff\xda") : -2]
    with pytest.raises(BadPicture, match="of 201 scans, more than the 100 allowed"):
        read_header(whole[:-2] + scan * 200 + whole[-2:])


def test_the_size_of_a_bomb_is_read_without_its_pixels() -> None:
    assert read_header(png_head(60_000, 60_000)).width == 60_000
