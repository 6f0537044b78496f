#!/usr/bin/env bash
# Installs a build into a scratch prefix and uses it from outside: the README's program by find_package, the same by
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

# The README's example is a program of two blocks, the only ones in these languages.
app=$scratch/app
mkdir -p "$app"
block() { awk -v fence="\`\`\`$1" '$0 == fence { inside = 1; next } /^```/ { inside = 0 } inside' "$here/../../README.md"; }
block cmake >"$app/CMakeLists.txt"
block cpp >"$app/app.cpp"

# A black image of 32 x 32 pixels; what the command says of it is what the program has to say.
{
  printf 'BM\x36\x0c\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x20\0\0\0\x20\0\0\0\x01\0\x18\0'
  head -c 3096 /dev/zero
} >"$scratch/black.bmp"
model=resnet20-cifar10
expected=$("$prefix/bin/pipit" classify "$model" "$scratch/black.bmp" --topk 1 | awk '$1 == 1 { print $NF }')
[ -n "$expected" ] || { echo "pipit classify names no class"; exit 1; }

# check PROGRAM: it names the class, and a missing argument or a wrong one is an error that it survives.
check() {
  local class
  class=$("$1" "$model" "$scratch/black.bmp")
  [ "$class" = "$expected" ] || { echo "$1 says '$class', pipit classify '$expected'"; exit 1; }
  ! "$1" 2>/dev/null || { echo "$1 without arguments ends well"; exit 1; }
  ! "$1" "$model" "$scratch/none.bmp" 2>/dev/null || { echo "$1 without an image ends well"; exit 1; }
  echo "$class"
}

echo "find_package:"
# A GPU build brings the CUDA runtime along: consumers need no toolkit.
cmake -S "$app" -B "$scratch/consumer" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
cmake --build "$scratch/consumer"
check "$scratch/consumer/app"

echo "pkg-config:"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name pipit.pc)")
export PKG_CONFIG_PATH
read -ra cflags <<<"$(pkg-config --cflags pipit)"
read -ra libs <<<"$(pkg-config --libs pipit)"
"$cxx" -O1 "$app/app.cpp" "${cflags[@]}" "${libs[@]}" -o "$scratch/app-pkg-config"
check "$scratch/app-pkg-config"

echo "headers:"
cd "$prefix/include/pipit"
mapfile -t headers < <(find . -name '*.h' -printf '%P\n' | sort)
[ "${#headers[@]}" -gt 20 ] || { echo "only ${#headers[@]} headers were installed"; exit 1; }
# What the package does not declare would be missing on another machine, not here.
foreign=$(grep -hoE '^#include <[^>]*[/.][^>]*>' "${headers[@]}" | sort -u | grep -vE '<(fmt/|xmmintrin\.h)' || true)
[ -z "$foreign" ] || { echo "headers of libraries that consumers do not get: $foreign"; exit 1; }
printf '%s\n' "${headers[@]}" |
  xargs -P "$(nproc)" -I{} "$cxx" "${cflags[@]}" -Wall -Wextra -Werror -fsyntax-only -include {} -x c++ /dev/null
echo "${#headers[@]} compile on their own"

echo "symbols:"
exported=$(readelf -sW "$(dirname "$PKG_CONFIG_PATH")"/*.a |
  awk '$5 ~ /GLOBAL|WEAK/ && $6 == "DEFAULT" && $7 != "UND" { print $8 }' | c++filt | grep pipit || true)
[ -z "$exported" ] || { echo "not hidden:"; head -n 20 <<<"$exported"; exit 1; }
echo "all hidden"
