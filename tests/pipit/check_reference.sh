#!/usr/bin/env bash
# Doxygen over the public headers: everything is documented, and it has nothing to warn of. Exits 77 where it is
# missing.
#
#   tests/pipit/check_reference.sh OUTPUT_FOLDER
set -euo pipefail
output=$(realpath -m "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

command -v doxygen >/dev/null || { echo "skipped: doxygen is not installed (Debian: doxygen)"; exit 77; }
rm -rf "$output"
mkdir -p "$output"

# reference FOLDER: Doxygen over the headers in FOLDER.
reference() { { cat docs/Doxyfile; echo "INPUT = $1"; echo "OUTPUT_DIRECTORY = $output"; } | doxygen -; }

# A check that cannot fail is none: it must object to a function without a word.
mkdir "$output/bad"
printf '/// @file\n/// A header.\n/** A name. */\nnamespace bad {\nint silent(int a);\n}\n' >"$output/bad/bad.h"
! reference "$output/bad" >/dev/null 2>&1 || { echo "doxygen accepts what is not documented"; exit 1; }

reference pipit
[ -e "$output/html/classpipit_1_1Classifier.html" ] || { echo "the reference has no page for Classifier"; exit 1; }
echo "doxygen: no warning"
