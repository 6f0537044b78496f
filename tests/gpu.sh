#!/usr/bin/env bash
# Everything that proves the GPU part, on a machine with an NVIDIA GPU: the GPU tests, whole models against the CPU,
# ONNX's own tests and other cases that the CPU is tested with, compute-sanitizer on small shapes, benchmarks, INT8
# against fp16, and PyTorch on the same card in the same run.
#
#   tests/gpu.sh [--build FOLDER] [--out FOLDER] [--quick] [--only PART,...] [--profile-options 'OPTION...']
#     --build FOLDER   holds pipit, test_cuda and the libraries that the machine lacks, or is a CMake build folder;
#                      without it build/ is configured (-DPIPIT_CUDA=ON) and built from this source tree
#     --out FOLDER     for summary.json, profiles.json, peers.json and log.txt [build/gpu]
#     --quick          about five minutes: fewer rounds, shorter limits
#     --only PARTS     some of tests,models,cases,benchmarks,int8,peers,sanitizer
#     --profile-options 'OPTION...'   given to every timed pipit profile; summary.json says which
#   tests/gpu.sh --report SUMMARY.json [MODEL-bBATCH]
#                                        prints the tables of docs/benchmarks/gpu.md, or every layer of one benchmark
#   tests/gpu.sh --pack FOLDER           builds, and fills FOLDER for --build on a machine without build tools: stripped
#                                        programs, the shared libraries that are not part of every system, and ONNX's
#                                        own tests
#
# A part that fails does not stop the others. Exits 0, 4 if a check failed, 2 for wrong usage, 1 if nothing could run.
# The models part needs PIPIT_TEST_DATA (tests/apps/test_real_models.py says what that folder holds). The cases part
# takes that folder's cases/, ONNX's own tests (PIPIT_NODE_TESTS, else Debian's libonnx-testdata) and, from a python3
# with ONNX Runtime, every operator in every place. The peers part takes a python3 with PyTorch (PIPIT_PYTHON names
# another one). compute-sanitizer comes with the CUDA toolkit. What is missing is left out; summary.json says so.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${here%/tests}

if [ "${1-}" = --report ]; then
  shift
  exec python3 "$here/gpu/report.py" "$@"
fi

build='' pack='' arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) sed -n '2,/^set -e/{/^set -e/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --quick) arguments+=("$1") && shift ;;
    --build | --out | --only | --pack | --profile-options)
      [ $# -ge 2 ] || { echo "gpu.sh: $1 needs a value" >&2; exit 2; }
      case $1 in
        --build) build=$2 ;;
        --pack) pack=$2 ;;
        --only)
          [[ ",$2" =~ ^(,(tests|models|cases|benchmarks|int8|peers|sanitizer))+$ ]] ||
            { echo "gpu.sh: --only '$2': some of tests,models,cases,benchmarks,int8,peers,sanitizer" >&2; exit 2; }
          arguments+=("$1=$2") ;;
        *) arguments+=("$1=$2") ;;
      esac
      shift 2 ;;
    *) echo "gpu.sh: '$1' is no option; see tests/gpu.sh --help" >&2; exit 2 ;;
  esac
done

if [ -z "$build" ]; then
  build=$root/build
  generator=()
  [ -e "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || generator=(-G Ninja)
  { cmake -S "$root" -B "$build" "${generator[@]}" -DPIPIT_CUDA=ON -DPIPIT_TESTS=ON &&
    cmake --build "$build" --parallel "$(nproc)" --target pipit_command test_cuda; } >&2 ||
    { echo "gpu.sh: the build failed; the reason stands above (--build FOLDER takes a finished one)" >&2; exit 1; }
fi
if [ -n "$pack" ]; then
  mkdir -p "$pack"
  for name in pipit test_cuda; do
    program=$build/$name
    [ -x "$program" ] || program=$build/tests/$name
    strip -o "$pack/$name" "$program"
    # glibc, the compiler's own libraries and zlib are there wherever a GPU driver is.
    ldd "$program" | awk '$3 ~ /^\// { print $3 }' |
      { grep -vE '/lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|z)\.so' || true; } | xargs -r cp -Lut "$pack"
  done
  node_tests=${PIPIT_NODE_TESTS-/usr/share/libonnx-testdata/data}
  [ ! -d "$node_tests" ] || tar -C "$node_tests" -cJf "$pack/node-tests.tar.xz" .
  exit 0
fi
exec python3 "$here/gpu/run.py" --build "$build" "${arguments[@]}"
