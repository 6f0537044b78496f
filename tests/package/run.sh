#!/usr/bin/env bash
# Installs a build into a scratch prefix and uses it from outside: a consumer by find_package, the same by
# pkg-config, every public header on its own, and no symbol that a shared library would re-export.
#
#   tests/package/run.sh BUILD_FOLDER SCRATCH_FOLDER CXX
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(realpath "$1") scratch=$(realpath -m "$2") cxx=$3
prefix=$scratch/prefix

rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$prefix" >"$scratch/install.log"
"$prefix/bin/pipit" --version

echo "find_package:"
cmake -S "$here" -B "$scratch/consumer" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_PREFIX_PATH="$prefix"
cmake --build "$scratch/consumer"
"$scratch/consumer/consumer"

echo "pkg-config:"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name pipit.pc)")
export PKG_CONFIG_PATH
read -ra cflags <<<"$(pkg-config --cflags pipit) -std=c++20"
read -ra libs <<<"$(pkg-config --libs pipit)"
"$cxx" "${cflags[@]}" -O1 "$here/main.cpp" -o "$scratch/consumer-pkg-config" "${libs[@]}"
"$scratch/consumer-pkg-config"

echo "headers:"
cd "$prefix/include/pipit"
mapfile -t headers < <(find . -name '*.h' -printf '%P\n' | sort)
[ "${#headers[@]}" -gt 20 ] || { echo "only ${#headers[@]} headers were installed"; exit 1; }
printf '%s\n' "${headers[@]}" |
  xargs -P "$(nproc)" -I{} "$cxx" "${cflags[@]}" -Wall -Wextra -Werror -fsyntax-only -include {} -x c++ /dev/null
echo "${#headers[@]} compile on their own"

echo "symbols:"
exported=$(readelf -sW "$(dirname "$PKG_CONFIG_PATH")"/*.a |
  awk '$5 ~ /GLOBAL|WEAK/ && $6 == "DEFAULT" && $7 != "UND" { print $8 }' | c++filt | grep pipit || true)
[ -z "$exported" ] || { echo "not hidden:"; head -n 20 <<<"$exported"; exit 1; }
echo "all hidden"
