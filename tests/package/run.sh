#!/usr/bin/env bash
# Installs a build into a scratch prefix and uses it from outside, as the README says: its program by find_package and
# by pkg-config, and every installed header on its own and without a header of any other library. All symbols are hidden
# but the public ones. The programs of examples/ are built and run.
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
for file in man/man1/pipit.1 man/man1/pipit-sweep-conv.1 bash-completion/completions/pipit zsh/site-functions/_pipit; do
  [ -s "$prefix/share/$file" ] || { echo "$file is not installed"; exit 1; }
done

# The README's program and the command that compiles it, and the first project of docs/c-api.md, taken as they stand.
app=$scratch/app
mkdir -p "$app"
block() { awk -v fence="\`\`\`$1" '$0 == fence { inside = 1; next } inside && /^```/ { exit } inside' "$here/../../$2"; }
block cmake docs/c-api.md >"$app/CMakeLists.txt"
block cpp README.md >"$app/label.cpp"
sed -n 's/^Compile it with `\([^`]*\)`.*/\1/p' "$here/../../README.md" >"$app/build.sh"
for file in CMakeLists.txt label.cpp build.sh; do
  [ -s "$app/$file" ] || { echo "the documents have no $file"; exit 1; }
done

# A black image of 32 x 32 pixels; what the command says of it is what the program has to say.
{
  printf 'BM\x36\x0c\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x20\0\0\0\x20\0\0\0\x01\0\x18\0'
  head -c 3096 /dev/zero
} >"$scratch/black.bmp"
model=resnet20-cifar10
expected=$("$prefix/bin/pipit" classify "$model" "$scratch/black.bmp" --topk 1 | awk '$1 == 1 { print $NF }')
[ -n "$expected" ] || { echo "pipit classify names no class"; exit 1; }

# check PROGRAM: it names the class first, and a missing argument or a wrong one is an error that it survives.
check() {
  local answer
  answer=$("$1" "$model" "$scratch/black.bmp")
  echo "$answer"
  [ "$(awk 'NR == 1 { print $NF }' <<<"$answer")" = "$expected" ] ||
    { echo "$1 does not begin with '$expected', as pipit classify does"; exit 1; }
  ! "$1" 2>/dev/null || { echo "$1 without arguments ends well"; exit 1; }
  ! "$1" "$model" "$scratch/none.bmp" 2>/dev/null || { echo "$1 without an image ends well"; exit 1; }
}

strict=(-Wall -Wextra -Werror)
echo "find_package:"
# A GPU build brings the CUDA runtime along: consumers need no toolkit.
cmake -S "$app" -B "$scratch/consumer" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_CXX_FLAGS="${strict[*]}" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
cmake --build "$scratch/consumer"
check "$scratch/consumer/label"

echo "pkg-config:"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name pipit.pc)")
export PKG_CONFIG_PATH
mkdir "$scratch/bin"
printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$(command -v "$cxx")" "${strict[*]}" >"$scratch/bin/g++"
chmod +x "$scratch/bin/g++"
(cd "$app" && PATH=$scratch/bin:$PATH sh -ex build.sh)
check "$app/label"

echo "examples:"
cmake -S "$here/../../examples" -B "$scratch/examples" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_CXX_FLAGS="${strict[*]}" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
cmake --build "$scratch/examples"
photos=$scratch/photos
mkdir "$photos"
for i in 1 2 3 4 5 6 7 8; do
  { head -c 54 "$scratch/black.bmp"; head -c 3072 < <(yes "$i of 8"); } >"$photos/$i.bmp"
done
cp "$scratch/black.bmp" "$photos/black.bmp"
# example NAME ARGUMENT... -- PATTERN...: it ends well and prints a line for each pattern; without arguments it fails.
example() {
  local program=$scratch/examples/$1 answer word arguments=()
  ! "$program" 2>"$scratch/usage.log" || { echo "$program without arguments ends well"; exit 1; }
  grep -q "$1: usage: $1 MODEL" "$scratch/usage.log" || { echo "$program shows no usage"; exit 1; }
  for word in "${@:2}"; do
    [ "$word" != -- ] || break
    arguments+=("$word")
  done
  answer=$("$program" "${arguments[@]}")
  echo "$answer"
  for pattern in "${@:$((${#arguments[@]} + 3))}"; do
    grep -qE "$pattern" <<<"$answer" || { echo "$program prints nothing like '$pattern'"; exit 1; }
  done
}
echo "no image" >"$photos/none.txt"
example classify "$model" "$photos" -- "^images: " "^black.bmp .*$expected" '^8.bmp +[0-9.]+ %' '^none.txt  error: '
rm "$photos/none.txt"
example layer_times "$model" Conv=im2col_gemm -- '^run +[0-9.]+ ms' 'im2col_gemm .*/Conv' '^together [0-9]+ %'
example int8 "$model" "$photos" "$scratch/plan.json" -- ' of 9 images$' '^ *[0-9.]+ dB '
[ -s "$scratch/plan.json" ] || { echo "int8 wrote no plan"; exit 1; }
example quantize "$model" "$photos" "$scratch/int8.onnx" -- 'layers in INT8' '^the same class for [0-9] of 9 images$'
"$prefix/bin/pipit" inspect "$scratch/int8.onnx" >/dev/null
example camera "$model" 20 -- '^20 frames, [0-9]+ classified, .*; 0 allocations$'
[ ! -x "$scratch/examples/label" ] || example label "$model" "$photos/black.bmp" -- "% +$expected"
if [ -x "$scratch/examples/profile_json" ]; then
  example profile_json "$model" "$scratch/profile.json" --
  python3 -c 'import json, sys; sys.exit(not json.load(open(sys.argv[1]))["layers"])' "$scratch/profile.json"
fi
example batch_server "$model" 4 50 -- '^50 requests answered in [0-9]+ runs$'

echo "headers:"
cd "$prefix/include"
mapfile -t headers < <(find . -type f -printf '%P\n' | sort)
mapfile -t public < <(cd "$here/../.." && ls pipit/*.h)
[ "${headers[*]}" = "${public[*]}" ] || { echo "installed: ${headers[*]}; public: ${public[*]}"; exit 1; }
read -ra cflags <<<"$(pkg-config --cflags pipit)"
# What a header includes, directly or not, is the compiler's own, the C library's, or in the package.
own=$(printf '#include <bits/stdc++.h>\n' | "$cxx" -std=c++20 -x c++ -M - | tr ' \\' '\n\n' | grep '^/' | sort -u)
for header in "${headers[@]}"; do
  "$cxx" "${cflags[@]}" "${strict[@]}" -fsyntax-only -include "$header" -x c++ /dev/null
  foreign=$("$cxx" "${cflags[@]}" -M -include "$header" -x c++ /dev/null | tr ' \\' '\n\n' | grep '^/' | sort -u |
    grep -vxF "$own" | grep -vE "^($prefix|/dev/null)" || true)
  [ -z "$foreign" ] || { echo "$header needs headers of other libraries: $foreign"; exit 1; }
done
echo "${#headers[@]} compile on their own"

echo "symbols:"
# Of namespace pipit all is public, and marked so; all else is hidden. States of classes are internal in all but name.
# Classes that the standard library makes of public types (std::future) are as visible as these.
symbols=$(readelf -sW "$(dirname "$PKG_CONFIG_PATH")"/libpipit_*.a |
  awk '$5 ~ /GLOBAL|WEAK/ && $7 != "UND" { print $5, $6, $8 }' | c++filt | grep pipit | sort -u)
inner='pipit::internal|pipit::onnx_pb|::State::|pipit_(embedded|cudart)'
hidden=$(awk '$1 == "GLOBAL" && $2 == "HIDDEN"' <<<"$symbols" | grep -E ' (pipit::|pipit_)' | grep -vE "$inner" || true)
[ -z "$hidden" ] || { echo "public, without PIPIT_API:"; head -n 20 <<<"$hidden"; exit 1; }
exported=$(awk '$2 == "DEFAULT"' <<<"$symbols" | grep -vE 'detail::(Compiled|Session)State' |
  grep -vE ' ((typeinfo|typeinfo name|vtable) for )?(pipit::|pipit_)|(typeinfo|typeinfo name|vtable) for std::|pipit::internal' || true)
exported+=$(awk '$2 == "DEFAULT"' <<<"$symbols" | grep -vE 'detail::(Compiled|Session)State' | grep 'pipit::internal' || true)
[ -z "$exported" ] || { echo "not hidden:"; head -n 20 <<<"$exported"; exit 1; }
echo "$(awk '$2 == "DEFAULT"' <<<"$symbols" | wc -l) public, all others hidden"
