#!/usr/bin/env bash
# Runs the whole test suite: installs what is missing, builds, and ends with CTest's closing line.
#
#   tests/run.sh [--werror | --sanitize | --threads] [CTEST ARGUMENT...]
#     --werror     treat warnings as errors; build and test the Python package too, with the packages of
#                  python/tests/requirements.txt, which pip installs into build/python-tests
#     --sanitize   build engine, layers, models, quant and compile into build-asan with AddressSanitizer and
#                  UndefinedBehaviorSanitizer, and run their tests
#     --threads    build all libraries into build-tsan with ThreadSanitizer, and run the tests of what threads share
#
# Numbers are drawn from a fixed seed; PIPIT_TEST_SEED=random draws others and prints the seed, which PIPIT_TEST_SEED=N
# repeats.
# Kernels for GPUs are built where the CUDA toolkit and an NVIDIA driver are found, with --werror without a driver too;
# PIPIT_CUDA=ON or OFF decides otherwise.
# Tests that need real models and images find them in the folder that PIPIT_TEST_DATA names, and say that they
# were skipped where it is not set. ONNX Runtime and Pillow, which some tests compare with, and jsonschema come with pip
# into build/python. Tests that look at reports want Chromium.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

# Tests of the image decoder of builds without libraries need libstb-dev, the package test pkg-config, the ONNX reader's
# conformance tests libonnx-testdata, those of manual pages and completion groff and zsh.
test_packages=(libstb-dev libonnx-testdata pkg-config python3-pip groff-base zsh)

preset=default folder=build cuda=AUTO run=()
case ${1-} in
  --werror) preset=ci && shift ;;
  --sanitize) preset=asan folder=build-asan cuda='' && shift ;;
  --threads)
    preset=tsan folder=build-tsan cuda='' && shift
    # Where the system shuffles addresses with more bits than ThreadSanitizer expects, it does not start.
    run=(setarch "$(uname -m)" -R)
    "${run[@]}" true 2>/dev/null || run=()
    ;;
esac

if [ "$preset" = default ] && [ -z "${PIPIT_CUDA-}" ] && ! nvidia_driver; then
  cuda=OFF
  note "no NVIDIA driver found: building without kernels for GPUs (PIPIT_CUDA=ON builds them and their emulator)"
fi
[ "$preset" != ci ] || test_packages+=(python3-dev)
install_packages "${build_packages[@]}" "${test_packages[@]}"
environment=$root/build/python-tests
if [ "$preset" = ci ]; then
  if reason=$(python_environment "$environment" "$root/python/tests/requirements.txt"); then
    cmake_options=(-DPIPIT_PYTHON=ON -DPython_EXECUTABLE="$environment/bin/python3")
  else
    note "the tests of the Python package are skipped: $reason"
    cmake_options=(-DPIPIT_PYTHON=OFF)
  fi
fi
# The other tests use the same packages.
if packages=$("$environment/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null); then
  export PYTHONPATH=$packages${PYTHONPATH:+:$PYTHONPATH}
fi
python_packages "$root/build/python" numpy onnx onnxruntime pillow jsonschema || note "tests that need them are skipped"
build "$preset" "$cuda"

cd "$root/$folder"
status=0
"${run[@]}" ctest --progress --output-on-failure --parallel "$(nproc)" --output-log test-output.txt "$@" || status=$?

# CTest writes its list of skipped and failed tests after the closing line: say why, and close again.
log=Testing/Temporary/LastTest.log
if [ -s "$log" ]; then
  reasons=$(sed -n -e '/: Skipped$/{n;p}' -e 's/^SKIP: //p' "$log" | sort | uniq -c)
  [ -z "$reasons" ] || printf '\nReasons for skipping (tests, reason):\n%s\n' "$reasons"
fi
grep '% tests passed' test-output.txt | tail -n 1 || note "CTest ran no tests; see above"
exit "$status"
