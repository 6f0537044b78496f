#!/usr/bin/env python3
"""Runs clang-tidy 14 as .clang-tidy says on C++ files that changed, and exits 1 where it finds something.

    check_tidy.py [--base COMMIT] [--build FOLDER] [--minutes N] [--all | FILE...]

Changed: since --base, by default since the branch left origin/main or main, or else in the last commit, and what is not
committed yet. A changed header is read through a source that includes it. One source takes about ten seconds, so after
--minutes (5) the rest is left out, and said to be. FOLDER (build) holds compile_commands.json; sources that it does not
name (CUDA's in a build without) are left out too.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Options that only g++ knows.
GCC = ("-Wno-unknown-warning-option", "-Wno-ignored-optimization-argument", "-Wno-unused-command-line-argument")
UNITY = re.compile(r'^#include "(.*\.cpp)"$', re.MULTILINE)
LEFT_OUT = re.compile(r" -Winvalid-pch| -include \S*cmake_pch\.hxx| -fvect-cost-model=\S+")


def git(*arguments):
    done = subprocess.run(["git", "-C", ROOT, *arguments], check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def apart(entry):
    """The entries of the sources that one run of the compiler takes together, or the entry itself."""
    source = pathlib.Path(entry["directory"], entry["file"])
    together = UNITY.findall(source.read_text(encoding="utf-8")) if source.name.startswith("unity_") else []
    return [{**entry, "file": f, "command": entry["command"].replace(entry["file"], f)} for f in together] or [entry]


def changed(base):
    head = git("rev-parse", "HEAD")
    candidates = [base] if base else [git("merge-base", "HEAD", name) for name in ("origin/main", "main")] + ["HEAD~1"]
    base = next((c for c in candidates if c and git("rev-parse", "--verify", "--quiet", f"{c}^{{commit}}") not in ("", head)), "")
    names = git("diff", "--name-only", "--diff-filter=d", base or "HEAD").splitlines()
    return names + git("ls-files", "--others", "--exclude-standard").splitlines()


def sources_of(names, known):
    """The sources among `names`, and for every header one that includes it: its namesake if there is one."""
    chosen = [n for n in names if n in known]
    for header in (n for n in names if re.search(r"\.(h|inc)$", n)):
        stem = header.rsplit(".", 1)[0]
        include = f'#include "{header}"'
        readers = [n for n in known if include in (ROOT / n).read_text(encoding="utf-8")]
        readers.sort(key=lambda n: (n != stem + ".cpp", n.startswith("tests/"), n))
        if readers and not any(r in chosen for r in readers[:1]):
            chosen.append(readers[0])
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="")
    parser.add_argument("--build", default="build", type=pathlib.Path)
    parser.add_argument("--minutes", default=5.0, type=float)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    tidy = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    version = subprocess.run([tidy, "--version"], check=False, capture_output=True, text=True).stdout if tidy else ""
    if "version 14." not in version:
        sys.exit("check_tidy.py: clang-tidy 14 is missing; apt-get install clang-tidy-14")
    database = ROOT / arguments.build / "compile_commands.json"
    if not database.exists():
        sys.exit(f"check_tidy.py: there is no {database}; configure first: cmake --preset default")
    entries = [e for entry in json.loads(database.read_text()) for e in apart(entry)]
    compiled = [pathlib.Path(entry["directory"], entry["file"]) for entry in entries]
    known = sorted({str(f.relative_to(ROOT)) for f in compiled if f.suffix == ".cpp" and f.is_relative_to(ROOT)})
    known = [n for n in known if not (ROOT / n).is_relative_to(database.parent)]
    files = known if arguments.all else sources_of(arguments.files or changed(arguments.base), known)

    end = time.monotonic() + 60 * arguments.minutes
    extra = [f"--extra-arg={option}" for option in GCC]

    def check(name):
        if time.monotonic() > end:
            return None
        return subprocess.run([tidy, "-p", folder, "--quiet", *extra, name], check=False, cwd=ROOT,
                              capture_output=True, text=True)

    found, left = 0, []
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        # Headers that GCC precompiled are none that clang could read.
        without = [{**e, "command": LEFT_OUT.sub("", e["command"])} for e in entries]
        pathlib.Path(folder, "compile_commands.json").write_text(json.dumps(without))
        for name, done in zip(files, pool.map(check, files)):
            if done is None:
                left.append(name)
            elif done.returncode != 0:
                found += 1
                print(f"{name}:\n{done.stdout}{'' if done.stdout else done.stderr}", file=sys.stderr)
    if left:
        print(f"note: no time left for {len(left)} files: {' '.join(left)}")
    print(f"clang-tidy: {len(files) - len(left)} sources, {found} with findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
