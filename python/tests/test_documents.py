"""The blocks of Python in the documents run as they stand."""

from __future__ import annotations

import contextlib
import io
import os
import re
import unittest

from support import MODEL, ROOT, PackageTest, bmp, random_pixels


class Documents(PackageTest):
    def run_blocks(self, name: str, least: int) -> None:
        self.images(20)
        self.images(20, "photos")
        (self.folder / "photo.jpg").write_bytes(bmp(random_pixels(0)))
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        blocks = re.findall(r"(?ms)^```python\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"))
        self.assertGreaterEqual(len(blocks), least)
        for block in blocks:
            with self.subTest(block), contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(block.replace("efficientnet-lite0", MODEL), {})  # that model is downloaded
            self.assertTrue(printed.getvalue())

    def test_readme(self) -> None:
        self.run_blocks("README.md", 1)

    def test_reference(self) -> None:
        self.run_blocks("docs/python.md", 8)

    def test_tutorial(self) -> None:
        self.run_blocks("docs/tutorial-python.md", 5)


if __name__ == "__main__":
    unittest.main()
