#!/usr/bin/env python3
"""All but the kernels for GPUs is compiled alike with CUDA and without, so that tests/run.sh after apps/demo.sh, which
leaves them out where there is no driver, builds nothing again.

    check_same_commands.py CMAKE SOURCE FOLDER      configures SOURCE twice in FOLDER; CUDA's toolkit is there
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys


def commands(cmake, source, folder, cuda):
    """The compiler's command lines by what they make."""
    subprocess.run([cmake, "-G", "Ninja", "-S", source, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_UNITY_BUILD=ON",
                    "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DPIPIT_TESTS=OFF", f"-DPIPIT_CUDA={cuda}"],
                   check=True, stdout=subprocess.DEVNULL)
    entries = json.loads((folder / "compile_commands.json").read_text())
    return {re.search(r" -o (\S+)", e["command"])[1]: e["command"] for e in entries}


def main():
    cmake, source, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    shutil.rmtree(folder, ignore_errors=True)
    without, with_cuda = (commands(cmake, source, folder, cuda) for cuda in ("OFF", "ON"))
    shutil.rmtree(folder)
    changed = [f for f in without if f in with_cuda and with_cuda[f] != without[f]]
    gone = [f for f in without if f not in with_cuda and "/cuda/stub.cpp" not in f]
    for file in changed + gone:
        print(f"{file}: compiled otherwise with CUDA:\n  {without[file]}\n  {with_cuda.get(file, 'not at all')}", file=sys.stderr)
    kernels = [f for f in with_cuda if f not in without]
    print(f"{len(without)} files without CUDA, {len(kernels)} more with it, {len(changed) + len(gone)} compiled otherwise")
    return 1 if changed or gone or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
