#!/usr/bin/env python3
"""Compares what libpipit.so promises to programs that were compiled before with the files beside this script:

    symbols.txt   the names that the library exports, without inline functions
    layouts.txt   sizes, members and values of the public classes, structures and enumerations of C++
    pipit_c.abi   functions and types of the C API, as libabigail writes them

    check_abi.py LIBRARY CXX CC          exits 1 and says what differs
    check_abi.py LIBRARY CXX CC --write  takes over what is there now

The first needs nm only and fails where the library exports anything that is not pipit's. The others need abidw and
abidiff (Debian: abigail-tools); without them they are skipped. What a change means for the version is in
CONTRIBUTING.md.
"""

import difflib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WRITE = "--write" in sys.argv
LIBRARY, CXX, CC = [a for a in sys.argv[1:] if a != "--write"]
# Of C++: what is in namespace pipit, not in pipit::internal, and what exceptions are recognized by.
PUBLIC = re.compile(r"pipit_[a-z_]+$|(typeinfo for |typeinfo name for |vtable for )?pipit::(?!internal)\w")
ABIDW = ["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--type-id-style", "hash"]
SKIPPED = 77


def run(*command, text=None):
    return subprocess.run([str(c) for c in command], input=text, check=True, capture_output=True, text=True).stdout


def same(name, now):
    """Whether the file `name` holds the lines `now`."""
    path = HERE / name
    if WRITE:
        path.write_text("".join(line + "\n" for line in now))
    before = path.read_text().splitlines()
    for line in difflib.unified_diff(before, now, name, "now", lineterm="", n=0):
        print(line)
    return before == now


def exported():
    """Mangled names and what they are called, without the version's own name; and those among them that are promised.
    Inline functions (W) are not: each program has its own, and the library only those that its compiler did not inline."""
    lines = [line.split() for line in run("nm", "-D", "--defined-only", LIBRARY).splitlines()]
    kinds = {line[-1].split("@")[0]: line[-2] for line in lines if line[-2] != "A"}
    names = sorted(kinds)
    called = dict(zip(names, run("c++filt", text="\n".join(names)).splitlines()))
    return called, [name for name in names if kinds[name] != "W"]


def symbols():
    names, promised = exported()
    foreign = [text for text in names.values() if not PUBLIC.match(text)]
    for text in foreign:
        print(f"exported, but not pipit's: {text}")
    # What a name that is public takes or returns may not be internal either.
    inner = [text for text in names.values() if "pipit::internal" in text and "CompiledState" not in text
             and "SessionState" not in text]
    for text in inner:
        print(f"exported, but names what is internal: {text}")
    return same("symbols.txt", promised) and not foreign and not inner


def c_functions():
    text = (ROOT / "pipit/pipit_c.h").read_text()
    text = re.sub(r"//.*", "", text)
    return re.findall(r"PIPIT_API\s+([^;]*?\b(pipit_\w+)\s*\([^;]*\));", text)


def c_api(folder):
    """The header's functions, defined: a library with debugging data whatever the real one was compiled with."""
    functions = c_functions()
    missing = {name for _, name in functions} ^ {name for name in exported()[0] if name.startswith("pipit_")}
    for name in sorted(missing):
        print(f"{name} is in only one of pipit_c.h and the library")
    source = folder / "stub.c"
    source.write_text('#include "pipit/pipit_c.h"\n' +
                      "".join(f"{declaration} {{ __builtin_trap(); }}\n" for declaration, _ in functions))
    run(CC, "-std=c99", "-g", "-shared", "-fPIC", f"-I{ROOT}", source, "-o", folder / "stub.so")
    now = folder / "pipit_c.abi"
    run(*ABIDW, "--out-file", now, folder / "stub.so")
    # Where the compiler lay and what it is called says nothing.
    text = re.sub(r" (path|comp-dir-path)='[^']*'", "", now.read_text())
    baseline = HERE / "pipit_c.abi"
    if WRITE:
        baseline.write_text(text)
    done = subprocess.run(["abidiff", baseline, now], capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr, end="")
    return done.returncode == 0 and not missing




def public_types():
    """Names of the classes, structures and enumerations that the C++ headers define in pipit and pipit::tools."""
    names = []
    for path in sorted((ROOT / "pipit").glob("*.h")):
        if path.name == "pipit_c.h":
            continue
        text = re.sub(r"//.*", "", path.read_text())
        namespace = "pipit::tools" if "namespace pipit::tools" in text else "pipit"
        for name in re.findall(r"^(?:class|struct|enum class) (?:PIPIT_API )?(\w+)(?: :[^{;]*)? {", text, re.M):
            names.append(f"{namespace}::{name}")
    return sorted(names)


def layouts(folder):
    types = public_types()
    headers = sorted(p.name for p in (ROOT / "pipit").glob("*.h") if p.name != "pipit_c.h")
    source = folder / "uses.cpp"
    source.write_text("".join(f'#include "pipit/{name}"\n' for name in headers) + "namespace uses {\n" + "".join(
        f"void use{i}(const {name}&) {{}}\n" for i, name in enumerate(types)) + "}\n")
    run(CXX, "-std=c++20", "-g", "-shared", "-fPIC", f"-I{ROOT}", source, "-o", folder / "uses.so")
    run(*ABIDW, "--out-file", folder / "uses.abi", folder / "uses.so")
    tree = xml.etree.ElementTree.parse(folder / "uses.abi").getroot()
    found = {}

    def walk(node, scope):
        for child in node:
            name = child.get("name")
            inner = f"{scope}::{name}" if scope else name
            if child.tag == "namespace-decl" or child.tag == "abi-instr":
                walk(child, inner if child.tag == "namespace-decl" else scope)
            elif child.tag == "class-decl" and child.get("is-declaration-only") != "yes":
                members = [f"{m.get('layout-offset-in-bits')} {m.find('var-decl').get('name')}"
                           for m in child.findall("data-member") if m.get("static") != "yes"]
                bases = [f"{b.get('layout-offset-in-bits')} base" for b in child.findall("base-class")]
                found[inner] = [f"{inner} {child.get('size-in-bits')} bits", *(f"  {m}" for m in bases + members)]
            elif child.tag == "enum-decl":
                found[inner] = [f"{inner}", *(f"  {e.get('value')} {e.get('name')}" for e in child.findall("enumerator"))]

    walk(tree, "")
    missing = [name for name in types if name not in found]
    for name in missing:
        print(f"no layout of {name}")
    return same("layouts.txt", [line for name in types if name in found for line in found[name]]) and not missing


def main():
    good = symbols()
    if not (shutil.which("abidw") and shutil.which("abidiff")):
        print("SKIP: layouts and the C API are not compared: abidw is not installed (Debian: abigail-tools)")
        return SKIPPED if good else 1
    with tempfile.TemporaryDirectory() as folder:
        good = layouts(pathlib.Path(folder)) and good
        good = c_api(pathlib.Path(folder)) and good
    print("the ABI is that of tests/abi" if good else
          f"the ABI differs from tests/abi; if it should: {pathlib.Path(sys.argv[0]).name} ... --write")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
