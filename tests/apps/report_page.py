"""Reading the pages of `--output FILE.html`, as text and in a browser without a window."""

import html.parser
import os
import shutil
import struct
import subprocess
import zlib

from command import OK, CommandTest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))),
               None)


class Report(html.parser.HTMLParser):
    """The elements of a page with their attributes, and the content of its scripts by their id."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self.script = [], {}, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        if tag == "script":
            self.script = attributes.get("id", "")
            self.scripts[self.script] = ""

    def handle_endtag(self, tag):
        if tag == "script":
            self.script = None

    def handle_data(self, text):
        if self.script is not None:
            self.scripts[self.script] += text


def pixels(png):
    """Width, height and rows of an 8-bit RGB or RGBA picture, as bytes."""
    at, data, header = 8, b"", None
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IHDR":
            header = struct.unpack(">IIBB", png[at + 8:at + 18])
        if kind == b"IDAT":
            data += png[at + 8:at + 8 + length]
        at += length + 12
    width, height, depth, colour = header
    assert depth == 8 and colour in (2, 6)
    size = {2: 3, 6: 4}[colour]
    data, rows, above = zlib.decompress(data), [], bytes(width * size)
    for y in range(height):
        line = bytearray(data[y * (width * size + 1) + 1:(y + 1) * (width * size + 1)])
        kind = data[y * (width * size + 1)]
        for i in range(len(line)):
            left = line[i - size] if i >= size else 0
            up, corner = above[i], above[i - size] if i >= size else 0
            guess = left + up - corner
            paeth = min((left, up, corner), key=lambda one: abs(guess - one))
            line[i] = line[i] + (0, left, up, (left + up) // 2, paeth)[kind] & 255
        rows.append(bytes(line))
        above = rows[-1]
    return [[row[i:i + 3] for i in range(0, len(row), size)] for row in rows]


class BrowserTest(CommandTest):
    def browse(self, page, *arguments):
        """Loads the file in a browser without a window; what it prints, after its messages were looked at."""
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        done = subprocess.run([BROWSER, "--headless=new", *sandbox, "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                               "--enable-logging=stderr", f"--user-data-dir={self.folder / 'browser'}", "--window-size=1000,1200",
                               "--virtual-time-budget=3000", *arguments, page.as_uri()],
                              cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertNotIn("CONSOLE", done.stderr)
        return done.stdout

    def look(self, page, *arguments):
        self.browse(page, f"--screenshot={self.folder / 'page.png'}", *arguments)
        return pixels((self.folder / "page.png").read_bytes())

    def brightness(self, page, *arguments):
        """From 0 to 255, the mean of a page that is not blank."""
        rows = self.look(page, *arguments)
        pixels_seen = [pixel for row in rows[::7] for pixel in row[::5]]
        self.assertGreater(len(set(pixels_seen)), 30)
        return sum(sum(pixel) / 3 for pixel in pixels_seen) / len(pixels_seen)
