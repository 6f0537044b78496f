#!/usr/bin/env bash
# Builds the minimal library (-DPIPIT_MINIMAL=ON) and uses it from C++ and C: it classifies as the whole library does,
# has no more than 4 MB without symbols, and exports nothing of what it leaves out. The build takes minutes, so that the
# test suite runs this only if PIPIT_TEST_MINIMAL is set in the environment; it exits 77 otherwise.
#
#   tests/package/minimal.sh COMMAND SCRATCH_FOLDER CXX CC [ISA...]
#     COMMAND  the pipit command of a whole build, for the expected answer
#     ISA      baseline, avx2 or avx512 [avx2]
set -euo pipefail
[ -n "${PIPIT_TEST_MINIMAL-}" ] || exit 77
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
command=$(realpath "$1") scratch=$(realpath -m "$2") cxx=$3 cc=$4
isas=("${@:5}")
[ ${#isas[@]} -gt 0 ] || isas=(avx2)
die() { echo "$*"; exit 1; }
mkdir -p "$scratch"

{
  printf 'BM\x36\x0c\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x20\0\0\0\x20\0\0\0\x01\0\x18\0'
  head -c 3096 /dev/zero
} >"$scratch/black.bmp"
model=$root/models/resnet20-cifar10.onnx
awk '$0 == "```cpp" { inside = 1; next } /^```/ { inside = 0 } inside' "$root/README.md" >"$scratch/label.cpp"
cat >"$scratch/tools.cpp" <<'END'
#include <pipit/pipit.h>
int main() { pipit::tools::calibrate("", {}, {}); }
END

for isa in "${isas[@]}"; do
  build=$scratch/$isa
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DPIPIT_MINIMAL=ON \
    -DPIPIT_MINIMAL_ISA="$isa" -DCMAKE_CXX_COMPILER="$cxx" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
  cmake --build "$build" --target pipit_shared >>"$build.log" 2>&1 || { tail -n 40 "$build.log"; exit 1; }
  library=$build/libpipit.so.0
  strip -o "$build/stripped" "$library"
  size=$(stat -L -c %s "$build/stripped")
  echo "$isa: $size bytes"
  [ "$size" -le 4000000 ] || die "more than 4 MB"

  names=$(nm -D --defined-only "$library" | c++filt)
  # pipit/option_values.h reads the values of the C API's options.
  readers='pipit::tools::(parse_[a-z_]+|check_(keep|kernel)|kernel_(names|choices))(\[abi:cxx11\])?\('
  ! grep -E 'pipit::tools::|pipit_(calibrate|quantize|evaluate_json|profile_json)' <<<"$names" | grep -vE "$readers" ||
    die "it exports tools"
  use=(-I"$root" "$library" -Wl,-rpath,"$build")
  ! "$cxx" -std=c++20 "$scratch/tools.cpp" "${use[@]}" -o "$build/tools" 2>"$build/tools.log" || die "calibrate() is linked"
  grep -q 'undefined reference to .pipit::tools::calibrate' "$build/tools.log" || { cat "$build/tools.log"; exit 1; }
  if [ "$isa" != baseline ] && ! grep -qw "${isa/avx512/avx512dq}" /proc/cpuinfo; then
    echo "this CPU does not run it"
    continue
  fi
  "$cxx" -std=c++20 "$scratch/label.cpp" "${use[@]}" -o "$build/label"
  "$cc" -std=c99 "$root/examples/label.c" "${use[@]}" -o "$build/label_c"
  expected=$(PIPIT_ISA=$isa "$command" classify "$model" "$scratch/black.bmp" --topk 1 | awk '$1 == 1 { print $NF }')
  for program in label label_c; do
    [ "$("$build/$program" "$model" "$scratch/black.bmp" | awk 'NR == 1 { print $NF }')" = "$expected" ] ||
      die "$program does not begin with '$expected'"
  done
  code=0
  "$build/label_c" resnet20-cifar10 "$scratch/black.bmp" 2>"$build/name.log" || code=$?
  [ "$code" -eq 3 ] && grep -q 'no built-in model' "$build/name.log" || { cat "$build/name.log"; die "exit code $code"; }
done
