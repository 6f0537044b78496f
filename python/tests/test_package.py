"""The package as a whole: what importing it costs, its types, its documentation, the command."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import pathlib
import re
import subprocess
import sys
import typing
import unittest

import pipit
from pipit import _options, _pipit, _types
from support import MODEL, ROOT, PackageTest

PACKAGE = pathlib.Path(pipit.__file__).parent
MODULES = [f"pipit.{path.stem}" for path in PACKAGE.glob("*.py") if path.stem not in ("__init__", "__main__")]


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


class Package(PackageTest):
    def test_importing_it_imports_only_what_is_needed(self) -> None:
        written = self.python("import sys, pipit; print(*sys.modules)")
        for module in ("numpy", "logging", "json", "tqdm", "PIL", "dataclasses", "tempfile", "pipit._types", "asyncio"):
            self.assertNotIn(module, written.split())

    def test_ray_is_needed_only_by_its_module(self) -> None:
        written = self.python(
            "import sys\n"
            "sys.modules['ray'] = None  # as if it were not installed\n"
            "import pipit\n"
            "try:\n"
            "    import pipit.ray\n"
            "except ImportError as error:\n"
            "    print(error)\n"
        )
        self.assertTrue(written.startswith("pipit.ray needs Ray: pip install 'ray[data]'"), written)

    def test_nothing_of_it_is_left_when_python_ends(self) -> None:
        self.python(  # nanobind reports what is left on stderr
            "import numpy as np, pipit\n"
            f"model = pipit.load({MODEL!r})\n"
            "session = model.session()\n"
            "classifier = pipit.Classifier(model.name)\n"
            "times = model.profile(runs=1, warmup=0)\n"
            "found = model.inspect()\n"
        )

    def test_version(self) -> None:
        self.assertEqual(
            pipit.__version__, re.search(r"pipit VERSION (\S+) ", (ROOT / "CMakeLists.txt").read_text())[1]
        )

    def test_all_public_names_are_documented(self) -> None:
        self.assertEqual(pipit.__all__, sorted(pipit.__all__))
        for name in pipit.__all__:
            self.assertTrue(getattr(pipit, name).__doc__, name)

    def test_documentation(self) -> None:
        for name in ["pipit", *MODULES]:
            if name == "pipit.ray" and not installed("ray"):
                continue
            failed, _ = doctest.testmod(importlib.import_module(name))
            self.assertEqual(failed, 0, name)

    def test_options_are_those_of_the_structs(self) -> None:
        """Each member of the C++ structs that says how something is done has an option, and each option a member."""
        structs = {
            _types.LoadOptions: [_pipit.LoadOptions],
            _types.ClassifierOptions: [_pipit.ClassifierOptions, _pipit.LoadOptions, _pipit.PreprocessOptions],
            _types.EvaluateOptions: [
                _pipit.EvaluateOptions,
                _pipit.ClassifierOptions,
                _pipit.LoadOptions,
                _pipit.PreprocessOptions,
            ],
            _types.TuneOptions: [
                _pipit.TuneOptions,
                _pipit.ClassifierOptions,
                _pipit.LoadOptions,
                _pipit.PreprocessOptions,
            ],
            _types.DiffOptions: [_pipit.DiffOptions, _pipit.LoadOptions, _pipit.PreprocessOptions],
            _types.QuantizeOptions: [_pipit.QuantizeOptions, _pipit.LoadOptions, _pipit.PreprocessOptions],
            _types.BenchOptions: [_pipit.BenchOptions, _pipit.TimingOptions, _pipit.LoadOptions],
            _types.VerifyOptions: [_pipit.VerifyOptions, _pipit.LoadOptions],
            _types.PruneOptions: [
                _pipit.PruneOptions,
                _pipit.PruneGoal,
                _pipit.ClassifierOptions,
                _pipit.LoadOptions,
                _pipit.PreprocessOptions,
            ],
        }
        structs |= {
            _types.CalibratorOptions: [
                _pipit.CalibrateOptions,
                _pipit.LoadOptions,
                _pipit.PreprocessOptions,
                _pipit.RangeOptions,
            ],
        }
        structs[_types.CalibrateOptions] = [
            *structs[_types.CalibratorOptions],
            _pipit.PlanFiles,
            _pipit.CheckOptions,
        ]
        own = {"autotune", "against_model", "labels", "precisions", "batches"}  # in Python otherwise
        for options, members in structs.items():
            if _pipit.LoadOptions in members:
                members.append(_pipit.PrecisionOptions)
            known = {name for struct in members for name in vars(struct) if not name.startswith("_")}
            given = {*options.__annotations__}
            known -= {
                "output",
                "plan",
                "skip",
                "limit",
            } - given  # arguments of their own of what writes files and reads a plan
            self.assertEqual(given - own, known - own - _options.NESTED, options.__name__)

    def test_options_of_sweeps_are_those_of_the_structs(self) -> None:
        plurals = {"precision": "precisions", "mode": "modes", "keep": "keeps"}
        read = {"batch", "shapes", "dimensions", "values", "arrays"}  # the options of a model that count
        for options, members, others in (
            (_types.ConvSweepOptions, [_pipit.ConvSweepOptions, _pipit.SweepRun, _pipit.ConvGrid], set()),
            (_types.SparsitySweepOptions, [_pipit.SparsitySweepOptions, _pipit.SweepRun], read),
        ):
            known = {name for struct in members for name in vars(struct) if not name.startswith("_")}
            given = {plurals.get(name, name) for name in options.__annotations__}
            self.assertEqual(given - others, known - _options.NESTED - {"model"}, options.__name__)

    def test_words_are_those_of_the_library(self) -> None:
        structs = {
            "precision": _pipit.PrecisionOptions,
            "keep_as": _pipit.TuneOptions,
            "scores": _pipit.ClassifierOptions,
            "method": _pipit.RangeOptions,
            "judge_by": _pipit.TuneOptions,
            "mode": _pipit.PruneOptions,
            "importance": _pipit.PruneOptions,
            "rows": _pipit.PruneOptions,
        }
        for name, struct in structs.items():
            target = struct()
            for word in _options.choices(name) or self.fail(name):
                setattr(target, name, word)
                self.assertEqual(getattr(target, name), word)
        self.assertEqual(typing.get_args(_types.Precision), _options.choices("precision"))

    def test_command(self) -> None:
        for arguments, code, said in (
            (["--version"], 0, f"pipit {pipit.__version__}"),
            (["--nothing"], 2, ""),
            (["inspect", MODEL, "--json"], 0, "{"),
            (["inspect", "nothing.onnx"], 1, ""),
        ):
            done = subprocess.run(
                [sys.executable, "-m", "pipit", *arguments], capture_output=True, text=True, check=False
            )
            if "has no command" in done.stderr:
                self.skipTest(done.stderr)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertTrue(done.stdout.startswith(said))

    def test_stub_has_all_names(self) -> None:
        stub = ast.parse((PACKAGE / "_pipit.pyi").read_text())
        defined = {node.name for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        self.assertEqual(defined, {name for name in vars(_pipit) if not name.startswith("_")})
        self.assertTrue((PACKAGE / "py.typed").exists())

    @unittest.skipUnless(installed("mypy"), "mypy is not installed")
    def test_types(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", self.folder, PACKAGE],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        self.assertEqual(done.returncode, 0, done.stdout)

    @unittest.skipUnless(installed("ruff"), "ruff is not installed")
    def test_style(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--no-cache", ROOT / "python"],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
