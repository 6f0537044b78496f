#!/usr/bin/env python3
"""Checks that every relative link of the Markdown files leads to a file, and to a heading where it names one.

    check_links.py [ROOT]       exits 1 and prints one line per broken link; reads the files that git does not
                                ignore, or all but those in build folders where there is no git or no checkout
    check_links.py --self-test
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1[^\n]*$", re.M | re.S)
CODE = re.compile(r"`[^`\n]*`")
IGNORED = re.compile(r"build(-.*)?|\.[^.].*")  # folders, as .gitignore has them


def anchor(heading):
    """Lower case, punctuation dropped, spaces to hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(text):
    """The fragments that headings can be reached by."""
    found, counts = set(), {}
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", FENCE.sub("", text), re.M):
        name = anchor(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading))
        counts[name] = counts.get(name, -1) + 1
        found.add(name if counts[name] == 0 else f"{name}-{counts[name]}")
    return found


def check(root, files):
    for name in files:
        text = (root / name).read_text(encoding="utf-8")
        blank = CODE.sub("", FENCE.sub(lambda m: "\n" * m[0].count("\n"), text))
        for match in LINK.finditer(blank):
            target, _, fragment = match[1].partition("#")
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            where = f"{name}:{blank.count(chr(10), 0, match.start()) + 1}"
            path = (root / name).parent / target if target else root / name
            if not path.exists() or not path.resolve().is_relative_to(root.resolve()):
                yield f"{where}: there is no {match[1]}"
            elif fragment and path.suffix == ".md" and fragment not in anchors(path.read_text(encoding="utf-8")):
                yield f"{where}: {target or name} has no heading for #{fragment}"


def markdown_files(root, git):
    """Of the checkout `root`, as the program `git` (None: there is none) lists them; otherwise of the folder."""
    if git:
        listed = subprocess.run([git, "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"], check=False, capture_output=True)
        files = [f for f in listed.stdout.decode().split("\0") if f and (root / f).exists()]
        if files:
            return files
    files = (p.relative_to(root) for p in root.rglob("*.md"))
    return sorted(str(f) for f in files if not any(IGNORED.fullmatch(folder) for folder in f.parts[:-1]))


def self_test():
    text = ("# A title, of `two` parts\n## Again\n## Again\n[good](docs/b.md) [good](#a-title-of-two-parts) [good](#again-1)\n"
            "[good](https://example.org/x) `[code](none.md)`\n```\n[code](none.md)\n```\n[bad](none.md)\n"
            "[bad](docs/b.md#none) [bad](../outside.md)\n")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "root"
        root.mkdir()
        (root.parent / "outside.md").write_text("# Outside\n")
        (root / "build-ci").mkdir()
        (root / "a.md").write_text(text)
        (root / "docs").mkdir()
        (root / "docs/b.md").write_text("# B\n")
        (root / "build-ci/c.md").write_text("[bad](none.md)\n")
        (root / ".gitignore").write_text("/build-*/\n")
        listed = [markdown_files(root, None)]
        if git := shutil.which("git"):
            listed.append(markdown_files(root, git))  # no checkout yet
            subprocess.run([git, "init", "-q", root], check=True)
            listed.append(markdown_files(root, git))
        found = [list(check(root, files)) for files in listed]
    expected = ["a.md:9: there is no none.md", "a.md:10: docs/b.md has no heading for #none",
                "a.md:10: there is no ../outside.md"]
    wrong = [f"{files}: {lines}" for files, lines in zip(listed, found) if (files, lines) != (["a.md", "docs/b.md"], expected)]
    for line in wrong:
        print(f"check_links.py --self-test: {line}, expected {expected}", file=sys.stderr)
    return 1 if wrong else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    files = markdown_files(root, shutil.which("git"))
    broken = list(check(root, files))
    for line in broken:
        print(line, file=sys.stderr)
    print(f"links: {len(files)} documents, {len(broken)} broken")
    return 1 if broken or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
