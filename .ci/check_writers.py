#!/usr/bin/env python3
"""Checks that files are written through engine/base/file.h (write_file, FileWriter, copy_as_new) and nowhere else:
whole or not at all, never through a name that somebody else could have put there.

    check_writers.py [ROOT]       exits 1 and prints one line per place that opens, copies, moves or cuts off a file by
                                  other means; reads the C++ that git tracks or could add, without tests/
    check_writers.py --self-test
"""

import pathlib
import re
import subprocess
import sys
import tempfile

SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh"}
FILES = r"(?:std::filesystem::|std::experimental::filesystem::|filesystem::|fs::)"
WRITES = {
    "stream": r"\b(?:basic_|w)?(?:of|f)stream\b|\b(?:basic_|w)?filebuf\b",
    "fopen": r"\b(?:fopen(?:64)?|freopen|fdopen)\s*\((?![^;]*,\s*\"r[be]*\"\s*[,)])",
    "open": r"\bO_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)\b|\bcreat(?:64)?\s*\(",
    "temporary": r"\b(?:mkstemp|mkostemp|mkstemps|mktemp|tmpfile|tmpnam|tempnam)(?:64)?\s*\(",
    "copy": FILES + r"copy(?:_file)?\s*\(",
    "move": r"(?:" + FILES + r"|std::|(?<![\w>])::)rename\s*\(|\brenameat2?\s*\(",
    "link": r"\b(?:linkat|symlinkat|symlink)\s*\(|" + FILES + r"create_(?:hard_link|symlink)\s*\(",
    "cut": r"(?:\bf|(?<![\w>])::)truncate(?:64)?\s*\(|\bfallocate\s*\(|" + FILES + r"resize_file\s*\(",
}
# File -> what it may do besides, and why. One that a file no longer does is an error, too.
EXCEPTIONS = {
    "engine/base/file.cpp": ({"open", "move", "link"}, "it is what writes files"),
    "engine/platform/host_memory.cpp": ({"stream"}, "/proc/self/clear_refs is no file but a switch of the kernel"),
    "pipit/measuring/json_lines.cpp": ({"open", "cut"}, "rows are added to a file that the user named, each when it was "
                                                       "measured, and a cut off one is taken away"),
}


def without_comments(text):
    """Comments blanked out, lines kept; strings stay as they are."""
    pattern = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.S)
    return pattern.sub(lambda m: m[0] if m[0].startswith('"') else "\n" * m[0].count("\n"), text)


def check(root, files, exceptions):
    for name in files:
        text = without_comments((root / name).read_text(encoding="utf-8"))
        allowed, _ = exceptions.get(name, (set(), ""))
        done = set()
        for kind, pattern in WRITES.items():
            for match in re.finditer(pattern, text):
                if re.match(r"\s*#\s*include", text[text.rfind("\n", 0, match.start()) + 1:]):
                    continue
                done.add(kind)
                if kind not in allowed:
                    line = text.count("\n", 0, match.start()) + 1
                    yield f"{name}:{line}: {match[0].strip(' (')}: write files through engine/base/file.h"
        for kind in sorted(allowed - done):
            yield f"{name}: is an exception for '{kind}' and does nothing of that kind"
    for name in sorted(set(exceptions) - set(files)):
        yield f"{name}: is an exception, and there is no such file"


def sources(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            check=True, capture_output=True)
    names = [f for f in listed.stdout.decode().split("\0") if f and (root / f).exists()]
    return sorted(f for f in names if pathlib.PurePath(f).suffix in SUFFIXES and not f.startswith("tests/"))


def self_test():
    bad = ['std::ofstream out(path);', 'std::fstream both(path);', 'std::wofstream out(path);', 'std::filebuf b;',
           'std::basic_ofstream<char> out(path);', 'fopen(path, "wb");', 'std::fopen(path,\n  "a");', 'fopen(path, mode);',
           'fdopen(3, "r+");', 'open(path, O_RDONLY | O_CREAT, 0666);', 'openat(d, path, O_RDWR);', 'creat(path, 0666);',
           'mkstemp(name);', 'fs::copy_file(a, b);', 'std::filesystem::copy(a, b);', 'fs::rename(a, b);',
           'std::rename(a, b);', '::rename(a, b);', 'ftruncate(d, 0);', '::truncate(path, 0);', 'fs::resize_file(a, 1);', 'fs::create_symlink(a, b);']
    good = ['#include <fstream>', 'std::ifstream in(path);', '// std::ofstream out;', '/* fopen(a, "w") */',
            'fopen(path, "rb");', 'builder.rename(id, name);', 'builder->rename(id, name);', 'open(path, O_RDONLY);',
            'void GraphBuilder::rename(ValueId id) {', 'copy_as_new(a, b);', 'std::copy(a, b, c);', 'truncate(a);',
            'std::stringstream text;', 'write_file(path, content);']
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for expected, lines in ((1, bad), (0, good)):
            for line in lines:
                (root / "a.cpp").write_text(line + "\n")
                found = list(check(root, ["a.cpp"], {}))
                if len(found) != expected:
                    wrong.append(f"{line!r}: {found}")
        (root / "a.cpp").write_text("std::ofstream out(path);\n")
        for exceptions, expected in (({"a.cpp": ({"stream"}, "")}, 0), ({"a.cpp": ({"stream", "cut"}, "")}, 1),
                                     ({"a.cpp": ({"stream"}, ""), "b.cpp": (set(), "")}, 1)):
            found = list(check(root, ["a.cpp"], exceptions))
            if len(found) != expected:
                wrong.append(f"{exceptions}: {found}")
    for line in wrong:
        print(f"check_writers.py --self-test: {line}", file=sys.stderr)
    return 1 if wrong else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    files = sources(root)
    found = list(check(root, files, EXCEPTIONS))
    for line in found:
        print(line, file=sys.stderr)
    print(f"writers: {len(files)} files, {len(found)} that write by other means than engine/base/file.h")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
