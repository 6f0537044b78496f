#!/usr/bin/env bash
# Fails when a C++ file that git tracks is not formatted as .clang-format says. Other releases of clang-format
# format differently, so it must be release 14 (Debian 12's).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

format=$(command -v clang-format-14 || command -v clang-format || true)
if [ -z "$format" ] || ! "$format" --version | grep -q 'version 14\.'; then
  echo "check_format.sh: clang-format 14 is missing; apt-get install clang-format-14" >&2
  exit 1
fi
mapfile -t files < <(git ls-files '*.h' '*.c' '*.cpp' '*.cu' '*.cuh')
if [ "${#files[@]}" -eq 0 ]; then
  echo "check_format.sh: git tracks no C++ files here" >&2
  exit 1
fi

# A check that cannot fail is none: it must object to this line.
if echo 'int  f( ){return 0 ;}' | "$format" --dry-run -Werror --assume-filename=probe.cpp 2>/dev/null; then
  echo "check_format.sh: $format accepts a badly formatted line" >&2
  exit 1
fi
printf '%s\n' "${files[@]}" | xargs -d '\n' -P "$(nproc)" -n 16 "$format" --dry-run -Werror
echo "formatting: ${#files[@]} files, 0 violations"
