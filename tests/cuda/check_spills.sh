#!/usr/bin/env bash
# Proves that the build reports a kernel whose registers spill, with its name and bytes, on every architecture that is
# compiled for: compiles one that must spill and one that need not, with the flags of the convolution kernels. Those
# flags turn the report into an error wherever warnings are errors, so a build of the project is the check itself.
#
#   check_spills.sh NVCC FLAGS ARCHITECTURES WERROR     lists are separated by semicolons, WERROR is 1 or 0; exits 77
#                                                       without NVCC
set -euo pipefail
[ $# -eq 4 ] || { echo "check_spills.sh: expected NVCC FLAGS ARCHITECTURES WERROR" >&2; exit 2; }
nvcc=$1 werror=$4
IFS=';' read -ra flags <<<"$2"
IFS=';' read -ra architectures <<<"$3"
[ -n "$nvcc" ] || { echo "SKIP: this build has no CUDA compiler"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# 1024 threads leave 64 registers each: too few for 128 values that all live across the barrier.
cat >"$folder/spilling.cu" <<'CUDA'
__global__ void __launch_bounds__(1024) spilling_kernel(float* x) {
  float v[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) v[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 128; ++i) x[i * 1024 + threadIdx.x] = v[127 - i] * v[i];
}
CUDA
cat >"$folder/lean.cu" <<'CUDA'
__global__ void lean_kernel(float* x) { x[threadIdx.x] *= 2; }
CUDA

failures=0
fail() { echo "check_spills.sh: $*" >&2; failures=$((failures + 1)); }

for architecture in "${architectures[@]}"; do
  number=${architecture%-real}
  number=${number%-virtual}
  [[ $number =~ ^[0-9]+[a-z]?$ ]] || number=80  # "native", "all-major"
  compile=("$nvcc" "-gencode=arch=compute_$number,code=sm_$number" -O3 "${flags[@]}" -c -o "$folder/out.o")
  status=0
  report=$("${compile[@]}" "$folder/spilling.cu" 2>&1) || status=$?
  grep -qE "spilled .*spilling_kernel.*[1-9][0-9]* bytes spill stores" <<<"$report" ||
    fail "sm_$number: the report does not name the kernel and its bytes: $report"
  if [ "$werror" = 1 ]; then
    [ $status -ne 0 ] || fail "sm_$number: a spilling kernel compiled, though warnings are errors"
  fi
  report=$("${compile[@]}" "$folder/lean.cu" 2>&1) || fail "sm_$number: a kernel without spills did not compile: $report"
  ! grep -q spilled <<<"$report" || fail "sm_$number: reported spills where there are none: $report"
done
[ $failures -eq 0 ]
