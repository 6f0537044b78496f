#!/usr/bin/env python3
"""Writes tests/models/image/resize_expectations.h and image_samples.h: what Pillow says, for test_image_*.cpp.

    python3 tests/models/image/make_resize_expectations.py        (needs Pillow and NumPy)

The source images come from a formula that tests/models/image/image_test_util.h repeats. Each two-sided resize is asked of
Pillow as two one-sided ones, horizontal first: that is what all versions up to 11 do, while later ones choose the order.
"""
import io
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
RESAMPLE = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


def random_pixels(height, width):
    """Top bytes of a linear congruential generator (Numerical Recipes)."""
    state = (height * 65536 + width) & 0xFFFFFFFF
    out = np.empty(height * width * 3, np.uint8)
    for i in range(out.size):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = state >> 24
    return out.reshape(height, width, 3)


def pattern_pixels(height, width):
    """A ramp in red, a checkerboard of extremes in green, diagonal stripes in blue."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([(7 * x + 3 * y) % 256, (x + y) % 2 * 255, ((x + 2 * y) // 3 % 2) * 200 + 20], 2).astype(np.uint8)


SOURCES = {"random": random_pixels, "pattern": pattern_pixels}


def resize(pixels, height, width, name):
    image = Image.fromarray(pixels)
    if name == "nearest":
        return np.asarray(image.resize((width, height), RESAMPLE[name]))
    image = image.resize((width, image.height), RESAMPLE[name])
    return np.asarray(image.resize((width, height), RESAMPLE[name]))


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


# (height, width) -> (height, width)
SMALL = [((5, 7), (3, 4)), ((3, 4), (5, 7)), ((1, 1), (2, 3)), ((6, 5), (1, 1)), ((4, 9), (4, 2)), ((9, 2), (3, 2))]
LARGE = [((375, 500), (256, 341)), ((333, 211), (50, 32)), ((32, 32), (224, 224)), ((97, 61), (113, 59)),
         ((1, 300), (20, 7)), ((300, 1), (7, 20)), ((64, 64), (32, 32)), ((480, 640), (37, 49)), ((17, 23), (17, 99))]


def lines(values, form):
    rows = [values[i:i + 20] for i in range(0, len(values), 20)]
    return ",\n    ".join(", ".join(form(v) for v in row) for row in rows)


def write_resizes():
    out = ["// Made by make_resize_expectations.py; do not edit.", "#pragma once", "", "#include <cstdint>",
           "#include <vector>", "", "namespace pipit::internal::test {", "", "struct SmallResize {",
           "  const char* source;", "  int from_height, from_width, to_height, to_width;", "  const char* interpolation;",
           "  std::vector<std::uint8_t> pixels;", "};", "", "struct LargeResize {", "  const char* source;",
           "  int from_height, from_width, to_height, to_width;", "  const char* interpolation;",
           "  std::uint64_t fnv1a;", "};", "", "// clang-format off", "inline const std::vector<SmallResize> kSmallResizes = {"]
    for source, make in SOURCES.items():
        for (fh, fw), (th, tw) in SMALL:
            for name in RESAMPLE:
                pixels = resize(make(fh, fw), th, tw, name).ravel().tolist()
                out.append(f'    {{"{source}", {fh}, {fw}, {th}, {tw}, "{name}", {{\n    {lines(pixels, str)}}}}},')
    out += ["};", "", "inline const std::vector<LargeResize> kLargeResizes = {"]
    for source, make in SOURCES.items():
        for (fh, fw), (th, tw) in LARGE:
            for name in RESAMPLE:
                value = fnv1a(resize(make(fh, fw), th, tw, name).tobytes())
                out.append(f'    {{"{source}", {fh}, {fw}, {th}, {tw}, "{name}", {value:#x}u}},')
    out += ["};", "// clang-format on", "", "}  // namespace pipit::internal::test", ""]
    (HERE / "resize_expectations.h").write_text("\n".join(out))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def raw_png(height, width, depth, colour, rows, extra=b"", interlaced=0):
    """A PNG of a kind that Pillow reads but does not write."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def interlaced_png(pixels):
    """8-bit RGB in the seven passes of Adam7."""
    parts = [pixels[y0::dy, x0::dx] for x0, y0, dx, dy in ADAM7]
    rows = [row.tobytes() for part in parts if part.size for row in part]
    return raw_png(pixels.shape[0], pixels.shape[1], 8, 2, rows, interlaced=1)


def with_adobe_transform(jpeg, transform):
    """The file with another colour transform in its Adobe marker, or with a comment in its place (None)."""
    at = jpeg.index(b"\xff\xee\0\x0eAdobe")
    if transform is None:
        return jpeg[: at + 1] + b"\xfe" + jpeg[at + 2:]
    return jpeg[: at + 15] + bytes([transform]) + jpeg[at + 16:]


def samples():
    """name -> (file bytes, largest difference allowed to stb_image; libjpeg-turbo and libpng are exact)."""
    image = Image.fromarray(pattern_pixels(5, 6))
    y, x = np.mgrid[0:11, 0:18]
    smooth = Image.fromarray(np.stack([x * 14, y * 22, (x + y) * 8], 2).astype(np.uint8))

    def save(picture, form, **options):
        stream = io.BytesIO()
        picture.save(stream, form, **options)
        return stream.getvalue()

    rgba = image.copy()
    rgba.putalpha(Image.fromarray(np.arange(0, 240, 8, dtype=np.uint8).reshape(5, 6)))
    grey_alpha = image.convert("L")
    grey_alpha.putalpha(128)
    wide = np.frombuffer(random_pixels(4, 16).tobytes(), np.uint8)
    noise = Image.fromarray(random_pixels(17, 23))
    cmyk = save(smooth.convert("CMYK"), "JPEG", optimize=True, quality=90)
    grey16 = [bytes([0, 5, 0, 200, 1, 2]), bytes([0x80, 0, 0xFF, 0xFF, 0x12, 0x34])]
    out = {
        "png_gray": (save(image.convert("L"), "PNG"), 0),
        "png_gray_alpha": (save(grey_alpha, "PNG"), 0),
        "png_rgb": (save(image, "PNG"), 0),
        "png_rgba": (save(rgba, "PNG"), 0),
        "png_palette": (save(image.quantize(7), "PNG"), 0),
        "png_bilevel": (save(image.convert("1"), "PNG"), 0),
        "png_rgb16": (raw_png(2, 3, 16, 2, [wide[:18].tobytes(), wide[18:36].tobytes()]), 0),
        "png_rgba16": (raw_png(2, 3, 16, 6, [wide[:24].tobytes(), wide[24:48].tobytes()]), 0),
        # Two bits per index, but three colours: index 3 (the last of the row) is black.
        "png_short_palette": (raw_png(1, 4, 2, 3, [b"\x1b"], chunk(b"PLTE", bytes(range(10, 100, 10)))), 0),
        "png_gray16": (raw_png(2, 3, 16, 0, grey16), 0),
        "png_gray_alpha16": (raw_png(1, 3, 16, 4, [wide[:12].tobytes()]), 0),
        "png_gray2": (raw_png(1, 5, 2, 0, [b"\x1b\xc0"]), 0),
        "png_gray4_transparent": (raw_png(1, 3, 4, 0, [b"\x1b\xc0"], chunk(b"tRNS", b"\0\1")), 0),
        "png_rgb_transparent": (raw_png(1, 2, 8, 2, [bytes(range(6))], chunk(b"tRNS", bytes([0, 3, 0, 4, 0, 5]))), 0),
        "png_palette_transparent": (raw_png(1, 4, 2, 3, [b"\x1b"], chunk(b"PLTE", bytes(range(10, 130, 10)))
                                            + chunk(b"tRNS", b"\0\x80")), 0),
        "png_gamma": (raw_png(1, 2, 8, 2, [bytes(range(40, 46))], chunk(b"gAMA", struct.pack(">I", 100000))), 0),
        "png_interlaced": (interlaced_png(random_pixels(9, 11)), 0),
        "bmp_rgb": (save(image, "BMP"), 0),
        "bmp_palette": (save(image.quantize(7), "BMP"), 0),
        "bmp_gray": (save(image.convert("L"), "BMP"), 0),
        "bmp_bilevel": (save(image.convert("1"), "BMP"), 0),
        "bmp_rgba": (save(rgba, "BMP"), 0),
        # JPEG: the inverse transform and the chroma interpolation of stb_image differ by a few steps, more in noise.
        "jpeg_baseline": (save(smooth, "JPEG", optimize=True, quality=90, subsampling=0), 2),
        "jpeg_subsampled": (save(smooth, "JPEG", optimize=True, quality=80, subsampling=2), 4),
        "jpeg_progressive": (save(smooth, "JPEG", optimize=True, quality=80, subsampling=2, progressive=True), 4),
        "jpeg_gray": (save(smooth.convert("L"), "JPEG", optimize=True, quality=80), 2),
        "jpeg_noise": (save(noise, "JPEG", optimize=True, quality=60, subsampling=2), 100),
        "jpeg_wide_chroma": (save(noise, "JPEG", optimize=True, quality=60, subsampling=1), 100),
        "jpeg_progressive_full": (save(noise, "JPEG", quality=60, subsampling=0, progressive=True), 8),
        "jpeg_rgb": (save(smooth, "JPEG", optimize=True, quality=80, keep_rgb=True), 2),
        "jpeg_one_pixel": (save(smooth.crop((7, 5, 8, 6)), "JPEG", optimize=True), 2),
        "jpeg_cmyk": (cmyk, 4),
        "jpeg_ycck": (with_adobe_transform(cmyk, 2), 4),
        "jpeg_cmyk_without_adobe": (with_adobe_transform(cmyk, None), 255),
        "jpeg_restart": (save(smooth, "JPEG", optimize=True, quality=80, restart_marker_blocks=1), 4),
        "jpeg_rotated": (save(smooth, "JPEG", optimize=True, quality=90, subsampling=0, exif=orientation(6)), 2),
        # Read by builds with libwebp.
        "webp_lossy": (save(image, "WEBP", quality=80), 0),
        "webp_lossless": (save(image, "WEBP", lossless=True), 0),
        "webp_alpha": (save(rgba, "WEBP", lossless=True, exact=True), 0),
        "webp_lossy_alpha": (save(rgba, "WEBP", quality=90), 0),
        "webp_rotated": (save(image, "WEBP", quality=80, exif=orientation(6)), 0),
    }
    return out


def orientation(value):
    exif = Image.Exif()
    exif[0x0112] = value
    return exif.tobytes()


def write_samples():
    out = ["// Made by make_resize_expectations.py; do not edit.", "#pragma once", "", "#include <string_view>", "",
           "namespace pipit::internal::test {", "", "/// A file, and its pixels as Pillow's convert('RGB') gives them, in hexadecimal.",
           "struct Sample {", "  std::string_view name;", "  int height, width;", "  int tolerance;  ///< of stb_image; the libraries are exact",
           "  std::string_view file;", "  std::string_view pixels;", "};", "", "// clang-format off",
           "inline constexpr Sample kSamples[] = {"]

    def text(data):
        digits = data.hex()
        return "\n     ".join(f'"{digits[i:i + 108]}"' for i in range(0, len(digits), 108))

    for name, (data, tolerance) in samples().items():
        picture = Image.open(io.BytesIO(data))
        pixels = np.asarray(picture.convert("RGB"))
        out.append(f'    {{"{name}", {pixels.shape[0]}, {pixels.shape[1]}, {tolerance},\n     {text(data)},\n     '
                   f'{text(pixels.tobytes())}}},')
    out += ["};", "// clang-format on", "", "}  // namespace pipit::internal::test", ""]
    (HERE / "image_samples.h").write_text("\n".join(out))


if __name__ == "__main__":
    write_resizes()
    write_samples()
