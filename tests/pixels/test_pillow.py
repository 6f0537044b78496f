#!/usr/bin/env python3
"""Compares decoded pixels with those of the Pillow that is installed, bit for bit.

    test_pillow.py WRITE_PIXELS [SEED]

Images are made by Pillow at random; where PIPIT_TEST_DATA is set the photographs there are compared too. Skipped (77)
where Pillow is missing or one of the two decodes without libjpeg-turbo.
"""
import io
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import warnings
import zlib

try:
    import numpy as np
    from PIL import Image, ImageOps, features
except ImportError as error:
    print(f"SKIP: {error}")
    sys.exit(77)

IMAGES = 400
PHOTOGRAPHS = 60


def picture(rng, mode):
    """Noise, or smooth waves with an edge, of an odd or even size."""
    height, width = (rng.choice((1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 50, 97)) for _ in range(2))
    channels = len(mode)
    if rng.random() < 0.4:
        values = np.random.default_rng(rng.getrandbits(32)).integers(0, 256, (height, width, channels))
    else:
        y, x = np.mgrid[0:height, 0:width]
        a, b = rng.uniform(0.01, 0.6), rng.uniform(0.01, 0.6)
        waves = [128 + 140 * np.sin(a * x + b * y + c) * (1 if x.size % 2 else np.cos(b * x)) for c in range(channels)]
        values = np.clip(np.stack(waves, 2) + 90 * (x > y)[:, :, None], 0, 255)
    values = values.astype(np.uint8)
    return Image.fromarray(values[:, :, 0] if channels == 1 else values, mode)


def orientation(rng):
    """EXIF data with an orientation, now and then one that does not exist."""
    order, mark = rng.choice(((">", b"MM\0*"), ("<", b"II*\0")))
    return (mark + struct.pack(order + "IH", 8, 2) + struct.pack(order + "HHIHH", 0x0100, 3, 1, 5, 0)
            + struct.pack(order + "HHIHH", 0x0112, 3, 1, rng.randint(0, 9), 0) + bytes(4))


def jpeg(rng):
    image = picture(rng, rng.choice(("L", "RGB", "RGB", "RGB", "CMYK")))
    options = {"quality": rng.randint(1, 100), "progressive": rng.random() < 0.4, "optimize": rng.random() < 0.5}
    if image.mode == "RGB":
        if rng.random() < 0.15:
            options["keep_rgb"] = True
        else:
            options["subsampling"] = rng.choice(("4:4:4", "4:2:2", "4:2:0"))
    if rng.random() < 0.3:
        options[rng.choice(("restart_marker_blocks", "restart_marker_rows"))] = rng.randint(1, 5)
    if rng.random() < 0.4:
        options["exif"] = b"Exif\0\0" + orientation(rng)
    stream = io.BytesIO()
    image.save(stream, "JPEG", **options)
    data = stream.getvalue()
    adobe = data.find(b"\xff\xee")
    if image.mode == "CMYK" and adobe >= 0:
        how = rng.choice(("cmyk", "ycck", "no marker"))
        if how == "ycck":  # Pillow does not write it: the same bytes, taken for luma, chroma and key
            data = data[: adobe + 15] + b"\2" + data[adobe + 16 :]
        elif how == "no marker":
            data = data[: adobe + 1] + b"\xfe" + data[adobe + 2 :]
    return data


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(rng):
    """Written by hand: Pillow writes neither interlaced files nor all depths."""
    colour = rng.choice((0, 2, 3, 4, 6))
    depth = rng.choice({0: (1, 2, 4, 8, 16), 3: (1, 2, 4, 8)}.get(colour, (8, 16)))
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    height, width = (rng.choice((1, 2, 3, 5, 8, 9, 17, 30)) for _ in range(2))
    interlaced = rng.random() < 0.5
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows, bits = b"", depth * channels
    step = max(bits // 8, 1)
    for x0, y0, dx, dy in passes if interlaced else [(0, 0, 1, 1)]:
        columns, lines = -(-(width - x0) // dx), -(-(height - y0) // dy)
        if columns <= 0 or lines <= 0:
            continue
        before = bytes((columns * bits + 7) // 8)
        for _ in range(lines):
            # Below 256 for 16-bit grey, or nearly all of it is clipped.
            row = bytearray(rng.getrandbits(8) for _ in before)
            if depth == 16 and colour == 0:
                row[::2] = bytes(rng.random() < 0.2 for _ in row[::2])
            which = rng.randint(0, 2)  # the filters none, sub and up
            left = bytes(step) + bytes(row[:-step] if len(row) > step else b"")
            other = {0: bytes(len(row)), 1: left[: len(row)], 2: before}[which]
            rows += bytes([which]) + bytes((a - b) & 255 for a, b in zip(row, other))
            before = bytes(row)
    extra = chunk(b"gAMA", struct.pack(">I", 100000)) if rng.random() < 0.5 else b""
    if colour == 3:
        entries = rng.randint(1, 2**depth)
        extra += chunk(b"PLTE", rng.randbytes(3 * entries))
        if rng.random() < 0.5:
            extra += chunk(b"tRNS", rng.randbytes(rng.randint(1, entries)))
    elif colour in (0, 2) and rng.random() < 0.5:
        extra += chunk(b"tRNS", struct.pack(">H", rng.randrange(2**depth)) * channels)
    if rng.random() < 0.3:
        extra += chunk(b"eXIf", orientation(rng))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    data = zlib.compress(rows, rng.randint(0, 9))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", data[:7]) + chunk(b"IDAT", data[7:])
            + chunk(b"IEND", b""))


def webp(rng):
    image = picture(rng, rng.choice(("RGB", "RGB", "RGBA")))
    options = {"lossless": rng.random() < 0.4, "quality": rng.randint(1, 100), "method": rng.randint(0, 6),
               "exact": rng.random() < 0.5}
    if rng.random() < 0.3:
        options["exif"] = orientation(rng)
    stream = io.BytesIO()
    image.save(stream, "WEBP", **options)
    return stream.getvalue()


def photographs():
    root = os.environ.get("PIPIT_TEST_DATA")
    files = sorted(pathlib.Path(root, "imagenet-samples").glob("*.jpg")) if root else []
    return files[:: max(1, len(files) // PHOTOGRAPHS)]


def decoded(program, files):
    """Per file (height, width, pixels) or the text of the error."""
    out = subprocess.run([program, *map(str, files)], check=True, capture_output=True).stdout
    at = 0
    for _ in files:
        end = out.index(b"\n", at)
        line, at = out[at:end].decode(errors="replace"), end + 1
        if line.startswith("error"):
            yield line
            continue
        width, height = map(int, line.split())
        yield np.frombuffer(out, np.uint8, width * height * 3, at).reshape(height, width, 3)
        at += width * height * 3


def main():
    program = sys.argv[1]
    decoder = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    if "libjpeg-turbo" not in decoder or not features.check("libjpeg_turbo"):
        print(f"SKIP: not libjpeg-turbo on both sides: {decoder.strip()}; Pillow: {features.version('jpg')}")
        return 77
    given = os.environ.get("PIPIT_TEST_SEED", "1")
    seed = random.randrange(2**32) if given == "random" else int(given)
    print(f"PIPIT_TEST_SEED={seed}; {decoder.strip()}; Pillow's libjpeg-turbo {features.version('libjpeg_turbo')}")
    rng = random.Random(seed)
    warnings.simplefilter("ignore")
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        files = photographs()
        makers = (jpeg, png, webp) if "libwebp" in decoder and features.check("webp") else (jpeg, png)
        print(f"{len(files)} photographs, and {IMAGES} of each made at random: "
              + ", ".join(make.__name__ for make in makers))
        for i in range(IMAGES):
            for make in makers:
                files.append(pathlib.Path(folder, f"{i}.{make.__name__}"))
                files[-1].write_bytes(make(rng))
        for start in range(0, len(files), 200):
            part = files[start : start + 200]
            for file, ours in zip(part, decoded(program, part)):
                theirs = np.asarray(ImageOps.exif_transpose(Image.open(file)).convert("RGB"))
                if not isinstance(ours, np.ndarray) or ours.shape != theirs.shape or (ours != theirs).any():
                    different += 1
                    how = ours if isinstance(ours, str) else f"{ours.shape} and {theirs.shape}"
                    print(f"{file.name}: not Pillow's pixels: {how}")
    print(f"{different} of {len(files)} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
