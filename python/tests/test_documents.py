"""The blocks of Python in the documents run as they stand, and arguments are named as they are."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import os
import re
import textwrap
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import pipit
from pipit import _types
from support import MODEL, ROOT, PackageTest, bmp, random_pixels

DOCUMENTS = ("README.md", "docs/python.md", "docs/tutorial-python.md", "docs/distributed.md")


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Functions, classes and methods by the name that follows the last dot of a call."""
    for name in pipit.__all__:
        found = getattr(pipit, name)
        if inspect.isfunction(found):
            yield name, found
        elif inspect.isclass(found) and found.__module__.startswith("pipit.") and found.__module__ != "pipit._pipit":
            for method, function in vars(found).items():
                if inspect.isfunction(function) and (method in ("__init__", "__call__") or not method.startswith("_")):
                    yield name if method == "__init__" else method, function


def named_arguments(function: Callable[..., Any]) -> set[str]:
    """Parameters, and the keys of options."""
    names: set[str] = set()
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind == inspect.Parameter.VAR_KEYWORD:
            options = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
            names |= {*getattr(_types, options[1]).__annotations__} if options else {"input"}  # an array by its name
        else:
            names.add(name)
    return names


class Arguments(unittest.TestCase):
    def setUp(self) -> None:
        self.known: dict[str, set[str]] = {}
        for name, function in public_functions():
            self.known.setdefault(name, set()).update(named_arguments(function))
        self.assertIn("skip_errors", self.known["classify_all"])
        self.assertIn("crop", self.known["Classifier"])
        self.assertIn("plan", self.known["load"])

    def test_calls_in_documents(self) -> None:
        """Those in blocks that do not run as well: they need a GPU, PyTorch or other machines."""
        checked = 0
        for document in DOCUMENTS:
            text = (ROOT / document).read_text(encoding="utf-8")
            for block in re.findall(r"(?ms)^```(?:python)?\n(.*?)^```", text):
                with contextlib.suppress(SyntaxError):  # of a shell
                    for call in ast.walk(ast.parse(textwrap.dedent(block))):
                        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                            continue
                        name = call.func.attr
                        of_pipit = isinstance(call.func.value, ast.Name) and call.func.value.id == "pipit"
                        if of_pipit:
                            self.assertTrue(hasattr(pipit, name), f"{document}: pipit.{name}")
                        if name in self.known and (of_pipit or not hasattr(pipit, name)):
                            given = {keyword.arg for keyword in call.keywords if keyword.arg}
                            self.assertLessEqual(given, self.known[name], f"{document}: {ast.unparse(call)}")
                            checked += len(given)
        self.assertGreater(checked, 30)

    def test_arguments_in_text(self) -> None:
        every = set().union(*self.known.values())
        for document in ("README.md", "docs/python.md", "docs/tutorial-python.md"):  # the other one has Ray's as well
            text = re.sub(r"(?ms)^```.*?^```", "", (ROOT / document).read_text(encoding="utf-8"))
            names = set(re.findall(r"`([a-z]\w*)=[^`]*`", text))
            self.assertEqual(names - every, set(), document)

    def test_docstrings_list_the_options(self) -> None:
        """All of them, where the docstring does not refer to another function; and no other ones."""
        every = set().union(*self.known.values())
        for name, function in public_functions():
            described = (inspect.getdoc(function) or "").split(">>>")[0]
            listed = set(re.findall(r"\b([a-z]\w*)=", described))
            self.assertEqual(listed - every, set(), name)
            parameters = inspect.signature(function).parameters
            if not any("Unpack" in str(parameter.annotation) for parameter in parameters.values()):
                continue
            options = named_arguments(function) - {*parameters}
            for other in re.findall(r"(\w+)\(|those of (\w+)|pipit\.(\w+Options)", described):
                referred = next(filter(None, other))
                options -= self.known.get(referred, set())
                options -= {*getattr(getattr(_types, referred, None), "__annotations__", ())}
            words = set(re.findall(r"\w+", described))
            with self.subTest(name):
                self.assertEqual(options - words, set())


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
