#!/usr/bin/env python3
"""Checks the rules of docs/architecture.md that a compiler does not: who may include whom, where CUDA may appear,
how long a file and a comment's line may be, and that nothing unfinished is left behind.

    check_layering.py [ROOT]     exits 1 and prints one line per violation; reads the files that git tracks
    check_layering.py --self-test

apps -> pipit -> compile -> models, quant, sparsity -> layers -> engine: a folder includes only what stands to its
right, and its CMake link line names every folder that it includes. The headers in pipit/ itself are public: they
include the standard library and each other; of pipit, python/ and apps/ include nothing else. Some of them, the types
and texts that all folders share, may be included everywhere.

Inside a folder MODULES says the same of its subfolders, the modules. Some modules are private: other folders use the
headers in the folder itself instead, its interface, and only tests include those of the module.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

MAY_INCLUDE = {
    "engine": set(),
    "layers": {"engine"},
    "models": {"layers", "engine"},
    "quant": {"layers", "engine"},
    "sparsity": {"layers", "engine"},
    "compile": {"quant", "layers", "engine"},
    "pipit": {"compile", "models", "quant", "sparsity", "layers", "engine"},
    "python": {"pipit"},
    "apps": {"pipit"},
    "tests": {"apps", "pipit", "compile", "models", "quant", "sparsity", "layers", "engine"},
}
# Module -> those of its folder that it may include besides itself; "." is what lies in the folder itself. A module
# with modules of its own stands here for what lies in it directly.
ENGINE = "base platform graph plan runtime cuda".split()  # each includes those before it
MODULES = {
    **{f"engine/{module}": set(ENGINE[:i]) for i, module in enumerate(ENGINE)},
    "layers": {"ops", "common", "passes", "reference"},
    "layers/ops": set(),
    "layers/common": {"ops"},
    "layers/passes": {".", "ops", "common"},
    "layers/reference": {"ops", "common"},
    "layers/cpu": {".", "ops", "common", "cpu/vector", "cpu/tile"},
    "layers/cuda": {".", "ops", "common", "cuda/cost", "cuda/device", "cuda/libraries"},
    "models": {"image", "onnx", "onnx/read", "onnx/write"},
    "models/image": {"."},
    "models/image/libraries": {"image"},
    "models/image/stb": {"image"},
    "models/image/webp": {"image"},
    "models/onnx": set(),
    "models/onnx/read": {"onnx"},
    "models/onnx/write": {"onnx", "onnx/read"},
    "quant": set(),
    "sparsity": set(),
    "compile": set(),
    "pipit": {"detail", "measuring", "pruning", "report", "sweeping"},
    "pipit/capi": {".", "detail", "measuring"},
    "pipit/detail": {"."},
    "pipit/measuring": {".", "detail"},
    "pipit/pruning": {".", "detail", "measuring"},
    "pipit/report": {".", "detail", "measuring"},
    "pipit/sweeping": {".", "detail", "measuring", "report"},
    "apps": {"commands", "display"},
    "apps/display": set(),
    "apps/options": {"display"},
    "apps/commands": {"options", "display"},
}


def add_kernels(device, modules):
    """Modules of kernels: layers/DEVICE/MODULE -> those of the device that it may include besides DEVICE itself."""
    for module, others in modules.items():
        MODULES[f"layers/{device}/{module}"] = {"ops", "common", device} | {f"{device}/{other}" for other in others.split()}


add_kernels("cpu", {
    "vector": "",
    "elementwise": "vector",
    "tile": "elementwise vector",
    "linear": "tile elementwise vector",
    "conv": "linear tile elementwise vector",
    "spatial": "vector",
    "reduction": "elementwise vector",
    "movement": "elementwise vector",
    "quantized": "conv linear tile elementwise vector",
})
add_kernels("cuda", {
    "cost": "",
    "device": "cost",
    "epilogue": "device",
    "libraries": "device cost",
    "elementwise": "epilogue device cost",
    "linear": "libraries device cost",
    "conv": "epilogue libraries device cost",
    "conv/chain": "conv epilogue device cost",
    "pooling": "epilogue device cost",
    "reduction": "device cost",
    "movement": "conv epilogue device cost",
})
add_kernels("cuda", {f"conv/{kernel}": "conv epilogue libraries device cost"
                     for kernel in "depthwise direct implicit_gemm library narrow_gemm packed_gemm pipelined_gemm "
                                   "resident_gemm spread_gemm stem unpacked_gemm".split()})
add_kernels("cuda", {f"conv/{kernel}": "conv/spread_gemm conv/chain conv epilogue device cost"
                     for kernel in "pooled_stem projected_sum resident_block row_chain squeeze_excite".split()})
PRIVATE = {"layers/cpu", "layers/cuda", "layers/reference", "pipit/capi", "pipit/pruning", "pipit/report", "pipit/sweeping"}
C_HEADERS = {"stddef.h", "stdint.h"}
SHARED_TYPES = {"pipit/error.h", "pipit/export.h", "pipit/scores.h", "pipit/text.h", "pipit/types.h", "pipit/version.h"}
# What uses pipit as any other program does.
USERS = {"apps", "python"}
CXX = {".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh"}
SOURCES = {".cpp", ".cc", ".cu"}
TEXT = CXX | {".py", ".sh", ".cmake", ".in", ".md", ".json", ".txt", ".proto"}
LONG, TOO_LONG = 500, 700
COLUMNS = 120  # of comments: clang-format breaks code before that, and leaves comments alone

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
CUDA_HEADER = re.compile(r"(^|/)(cuda|cudnn|cublas|nvrtc|nvml|mma\.h|cutlass|thrust/|cub/)|\.cuh$")
LIBRARY = re.compile(r"pipit_library\(\s*(\w+)([^)]*)\)")
NAMESPACE = re.compile(r"^(?:inline )?namespace pipit\b(?!::internal\b)", re.M)
# What the public headers declare, and its definitions outside of pipit/.
IN_PUBLIC_NAMESPACE = {"engine/base/printable.cpp", "engine/base/text.cpp", "engine/base/version.cpp", "engine/graph/types.cpp",
                       "engine/graph/dtype.h"}
# Written in halves, so that this file passes its own check.
UNFINISHED = re.compile(r"\b(TO" + "DO|FIX" + "ME|XX" + "X)\\b")


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def linked_folders(root):
    """folder -> the folders that its pipit_library() call links, for every folder that is a library."""
    linked = {}
    for folder in MAY_INCLUDE:
        path = root / folder / "CMakeLists.txt"
        match = LIBRARY.search(path.read_text()) if path.exists() else None
        if match:
            linked[match[1]] = set(re.findall(r"pipit::(\w+)", match[2]))
    return linked


def check_links(linked):
    for folder, targets in sorted(linked.items()):
        for target in sorted(targets - MAY_INCLUDE[folder]):
            yield f"{folder}/CMakeLists.txt: links pipit::{target}; {folder} may link {names(MAY_INCLUDE[folder])}"


def names(folders):
    return ", ".join(sorted(folders)) or "no other folder"


def is_public(path):
    return path.parent == pathlib.PurePosixPath("pipit") and path.suffix == ".h"


def may_stand_in_public(bracket, target):
    standard = bracket == "<" and len(target.parts) == 1 and (not target.suffix or str(target) in C_HEADERS)
    return standard or (bracket == '"' and is_public(target))


def module_of(path):
    """The folder that a file lies in, where its top folder is divided into modules."""
    return str(path.parent) if any(module.split("/")[0] == path.parts[0] for module in MODULES) else None


def check_module(where, path, target):
    """An include of one of our files: whether the module of the file may have it."""
    folder, module, other = path.parts[0], module_of(path), module_of(target)
    if folder != target.parts[0]:
        private = next((str(p) for p in target.parents if str(p) in PRIVATE), None)
        if private and folder in MAY_INCLUDE and folder != "tests":
            yield f"{where}: {folder} includes {target}; {private}/ is private, use the headers in {target.parts[0]}/"
    elif module in MODULES and module != other:
        short = "." if other == folder else other[len(folder) + 1:]
        if short not in MODULES[module]:
            yield f"{where}: {module}/ includes {target}; of {folder}/ it may include {names(MODULES[module])}"


def check_includes(path, text, linked):
    folder = path.parts[0]
    allowed = MAY_INCLUDE.get(folder)
    if module_of(path) not in MODULES and module_of(path) is not None:
        yield f"{path}: {path.parent}/ is not a module; MODULES in .ci/check_layering.py lists them"
    in_cuda = "cuda" in path.parts[:-1]
    for match in INCLUDE.finditer(text):
        where, target = f"{path}:{line_of(text, match.start())}", pathlib.PurePosixPath(match[2])
        if target.suffix in SOURCES:
            yield f"{where}: includes the source file {target}"
        if ".." in target.parts:
            yield f"{where}: includes {target}; name the path from the root of the project"
        if CUDA_HEADER.search(match[2]) and not in_cuda:
            yield f"{where}: includes the CUDA header {target} outside of a cuda/ folder"
        other = target.parts[0]
        if is_public(path) and not may_stand_in_public(match[1], target):
            yield f"{where}: a public header includes {target}; it may include the standard library and others of pipit/"
        if match[1] == "<" or str(target) in SHARED_TYPES or allowed is None or other not in MAY_INCLUDE:
            continue
        if folder in USERS and other != folder:
            if str(path) == "python/src/command.cpp" and str(target) == "apps/command.h":
                continue  # the command as a function
            if not is_public(target):
                yield f"{where}: {folder} includes {target}; it may include public headers, those of pipit/ itself"
            continue
        yield from check_module(where, path, target)
        if other == folder:
            continue
        if other not in allowed:
            yield f"{where}: {folder} includes {target}; it may include {names(allowed)}"
        elif other not in linked.get(folder, allowed):
            yield f"{where}: includes {target}, but {folder}/CMakeLists.txt does not link pipit::{other}"


def check_namespaces(path, text):
    if path.parts[0] not in MAY_INCLUDE or str(path.parent) == "pipit" or str(path) in IN_PUBLIC_NAMESPACE:
        return
    for match in NAMESPACE.finditer(text):
        yield f"{path}:{line_of(text, match.start())}: opens namespace pipit, which is public; internals are in pipit::internal"


def check_text(path, text):
    for match in UNFINISHED.finditer(text):
        yield f"{path}:{line_of(text, match.start())}: '{match[0]}': finish it, or open an issue"


def check_comments(path, text):
    """Of scripts, only lines that are nothing but comment, or begin a docstring."""
    marks = ("#", '"""') if path.suffix not in CXX else ("",)
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS and line.lstrip().startswith(marks):
            yield f"{path}:{number}: {len(line)} columns; comments end at {COLUMNS}"


def check(root, files):
    """The violations in `files` (paths relative to `root`), and the notes that are none."""
    linked = linked_folders(root)
    violations, notes = list(check_links(linked)), []
    for path in sorted(map(pathlib.PurePosixPath, files)):
        if path.suffix not in TEXT and path.name not in ("run",):
            continue
        text = (root / path).read_text(encoding="utf-8", errors="replace")
        violations += check_text(path, text)
        if path.suffix in CXX:
            violations += check_includes(path, text, linked)
        if path.suffix in CXX:
            violations += check_namespaces(path, text)
        if path.suffix in CXX | {".py", ".sh", ".cmake"} or path.name == "CMakeLists.txt":
            violations += check_comments(path, text)
        if path.suffix in CXX | {".py", ".sh"}:
            lines = len(text.splitlines())
            if lines > TOO_LONG:
                violations.append(f"{path}: {lines} lines; at most {TOO_LONG}")
            elif lines > LONG:
                notes.append(f"{path}: {lines} lines, over the guide of {LONG}")
    return violations, notes


def self_test():
    """Plants one violation of every kind among files that are in order, and expects exactly those."""
    good = {
        "engine/CMakeLists.txt": "pipit_library(engine DEPENDS fmt::fmt SOURCES ${sources})\n",
        "layers/CMakeLists.txt": "pipit_library(layers DEPENDS pipit::engine SOURCES ${sources})\n",
        "models/CMakeLists.txt": "pipit_library(models DEPENDS pipit::engine pipit::layers)\n",
        "quant/CMakeLists.txt": "pipit_library(quant DEPENDS pipit::engine)\n",
        "engine/graph/shape.h": '#include <vector>\n#include "engine/base/error.h"\n',
        "engine/cuda/device.cpp": '#include <cuda_runtime_api.h>\n#include "engine/runtime/session.h"\n',
        "engine/graph/tensor.h": '#include "pipit/types.h"\n#include "engine/graph/shape.h"\n',
        "layers/cpu_ceilings.h": "#include <vector>\n",
        "layers/ops/conv.h": '#include "engine/graph/layer.h"\n',
        "layers/cpu/ceilings.cpp": '#include "layers/cpu_ceilings.h"\n#include "layers/cpu/tile/tile.h"\n',
        "layers/cpu/tile/tile.h": '#include "layers/cpu/parallel.h"\n#include "layers/cpu/vector/lookup.h"\n',
        "models/model.h": '#include "layers/ops/conv.h"\n#include "onnx.pb.h"\n',
        "pipit/CMakeLists.txt": "pipit_library(pipit PRIVATE pipit::models SOURCES ${sources})\n",
        "pipit/pipit.h": '#include <string>\n#include "pipit/error.h"\n',
        "pipit/detail/load.h": '#include <fmt/format.h>\n#include "models/model.h"\n#include "pipit/pipit.h"\n',
        "apps/main.cpp": '#include <CLI/CLI.hpp>\n#include "apps/display/table.h"\n#include "pipit/pipit.h"\n',
        "models/kind.h": '#include "pipit/text.h"\n#include "pipit/version.h"\n',
        "python/src/model.cpp": '#include <nanobind/nanobind.h>\n#include "pipit/pipit.h"\n#include "python/src/module.h"\n',
        "tests/models/test.cpp": '#include "apps/display/table.h"\n#include "layers/cpu/tile/tile.h"\n#include "samples.h"\n',
        "layers/ops/long.cpp": "// a line\n" * 500,
        "tests/wide.py": f"# {'é' * 118}\nname = '{'x' * 120}'\n",
    }
    bad = {
        "engine/graph/up.cpp": ('#include "layers/ops/conv.h"\n', "engine/graph/up.cpp:1: engine includes layers/ops/conv.h"),
        "layers/up.cpp": ('\n# include "models/model.h"\n', "layers/up.cpp:2: layers includes models/model.h"),
        "models/side.cpp": ('#include "quant/scale.h"\n', "models/side.cpp:1: models includes quant/scale.h"),
        "models/tests.cpp": ('#include "tests/a.h"\n', "models/tests.cpp:1: models includes tests/a.h"),
        "quant/unlinked.cpp": ('#include "layers/ops/conv.h"\n', "does not link pipit::layers"),
        "layers/cpu/gpu.cpp": ("#include <cublasLt.h>\n", "CUDA header cublasLt.h outside"),
        "quant/device.cpp": ('#include "engine/cuda/launch.cuh"\n', "launch.cuh outside"),
        "engine/graph/source.cpp": ('#include "engine/graph/shape.cpp"\n', "includes the source file engine/graph/shape.cpp"),
        "engine/graph/dots.cpp": ('#include "../graph/shape.h"\n', "from the root of the project"),
        "engine/graph/unfinished.cpp": ("int a;\n// TO" + "DO: later\n", "engine/graph/unfinished.cpp:2: 'TO" + "DO'"),
        "engine/base/wide.h": ("int a;\n  /// " + "x" * 115 + "\n", "engine/base/wide.h:2: 121 columns"),
        "tests/wide.sh": ("  # " + "x" * 117 + "\n", "tests/wide.sh:1: 121 columns"),
        "models/too_long.cpp": ("// a line\n" * 701, "models/too_long.cpp: 701 lines"),
        "engine/plan/public.cpp": ('#include "pipit/pipit.h"\n', "engine/plan/public.cpp:1: engine includes pipit/pipit.h"),
        "pipit/up.cpp": ('#include "apps/table.h"\n', "pipit/up.cpp:1: pipit includes apps/table.h"),
        "pipit/private.h": ('#include "pipit/detail/load.h"\n', "a public header includes pipit/detail/load.h"),
        "pipit/foreign.h": ("#include <fmt/format.h>\n", "a public header includes fmt/format.h"),
        "sparsity/CMakeLists.txt": ("pipit_library(sparsity DEPENDS pipit::models)\n", "links pipit::models"),
        "quant/compiles.h": ('#include "compile/compile.h"\n', "quant/compiles.h:1: quant includes compile/compile.h"),
        "compile/reads.cpp": ('#include "models/model.h"\n', "compile/reads.cpp:1: compile includes models/model.h"),
        "models/open.h": ("namespace pipit::onnx {\n}\n", "models/open.h:1: opens namespace pipit"),
        "python/src/deep.cpp": ('#include "pipit/detail/load.h"\n', "python includes pipit/detail/load.h"),
        # modules
        "engine/outside.h": ("int a;\n", "engine/ is not a module"),
        "layers/cpu/attic/new.h": ("int a;\n", "layers/cpu/attic/ is not a module"),
        "engine/plan/up.h": ('#include "engine/runtime/session.h"\n', "engine/plan/ includes engine/runtime/session.h"),
        "layers/registry.cpp": ('#include "layers/cpu/vector/lookup.h"\n', "layers/ includes layers/cpu/vector/lookup.h"),
        "layers/ops/kernel.h": ('#include "layers/cpu/parallel.h"\n', "layers/ops/ includes layers/cpu/parallel.h"),
        "layers/passes/oracle.h": ('#include "layers/reference/conv.h"\n', "layers/passes/ includes layers/reference/conv.h"),
        "layers/cpu/conv/side.h": ('#include "layers/cpu/quantized/side.h"\n', "layers/cpu/conv/ includes layers/cpu/quantized"),
        "layers/cuda/conv/cpu.h": ('#include "layers/cpu/conv/im2col.h"\n', "layers/cuda/conv/ includes layers/cpu/conv/im2col.h"),
        "models/tile.cpp": ('#include "layers/cpu/tile/tile.h"\n', "layers/cpu/ is private"),
        "apps/commands/compiles.cpp": ('#include "compile/compile.h"\n', "apps/commands/compiles.cpp:1: apps includes compile/compile.h"),
        "apps/commands/page.cpp": ('#include "pipit/report/html_report.h"\n', "apps includes pipit/report/html_report.h; it may include public"),
        "apps/commands/deep.cpp": ('#include "pipit/detail/load.h"\n', "apps includes pipit/detail/load.h"),
        "apps/commands/file.cpp": ('#include "engine/base/file.h"\n', "apps includes engine/base/file.h"),
        "models/oracle.cpp": ('#include "layers/reference/index.h"\n', "layers/reference/ is private"),
        "apps/display/run.h": ('#include "apps/options/options.h"\n', "apps/display/ includes apps/options/options.h"),
    }
    noted = {"layers/ops/rather_long.cpp": "// a line\n" * 501}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {**good, **{k: v[0] for k, v in bad.items()}, **noted}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        clean, no_notes = check(root, [*good])
        clean = [v for v in clean if not v.startswith("sparsity/")]  # link lines are read whatever is listed
        found, notes = check(root, [*good, *bad, *noted])
    problems = [f"reported in files that are in order: {v}" for v in clean + no_notes]
    for name, (_, expected) in bad.items():
        if not any(v.startswith(name) and expected in v for v in found):
            problems.append(f"not reported: {name}: ...{expected}...")
    if len(found) != len(bad):
        problems.append(f"{len(found)} reports for {len(bad)} violations:\n  " + "\n  ".join(found))
    if [n.split(":")[0] for n in notes] != [*noted]:
        problems.append(f"notes about long files: {notes}")
    for problem in problems:
        print(f"check_layering.py --self-test: {problem}", file=sys.stderr)
    return 1 if problems else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True, capture_output=True)
    files = [f for f in listed.stdout.decode().split("\0") if f and (root / f).exists()]
    if not files:
        print(f"check_layering.py: git tracks no files in {root}", file=sys.stderr)
        return 1
    violations, notes = check(root, files)
    for note in notes:
        print(f"note: {note}")
    for violation in violations:
        print(violation, file=sys.stderr)
    print(f"layering: {len(files)} files, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
