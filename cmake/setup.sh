# shellcheck shell=bash
# Shared by apps/demo.sh and tests/run.sh, which source it: installs Debian packages that are missing,
# configures and builds. What it prints goes to stderr.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# What every build needs. The last three because one configuration, with tests, serves both scripts.
build_packages=(g++ cmake ninja-build libeigen3-dev libprotobuf-dev protobuf-compiler libfmt-dev
                nlohmann-json3-dev libcli11-dev libjpeg-dev libpng-dev libwebp-dev libgtest-dev libgmock-dev
                libxxhash-dev python3)

note() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
  note "$*"
  exit 1
}

debian_like() { command -v apt-get >/dev/null && command -v dpkg >/dev/null; }

# missing_packages PACKAGE...: prints those that dpkg does not report as installed.
missing_packages() {
  local installed package
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    grep -qxF "installed $package" <<<"$installed" || printf '%s\n' "$package"
  done
}

# as_root COMMAND...: runs it directly or through sudo; fails where neither is possible.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    command -v sudo >/dev/null && sudo "$@"
  fi
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" >/dev/null; }

# install_packages PACKAGE...: installs what is missing, and nothing else. Does not touch the package lists
# when everything is there.
install_packages() {
  if ! debian_like; then
    note "not a Debian-like system: nothing is installed"
    return
  fi
  local missing
  read -ra missing <<<"$(missing_packages "$@" | tr '\n' ' ')"
  [ ${#missing[@]} -gt 0 ] || return 0
  note "installing ${missing[*]}"
  { apt_get update && apt_get install -y --no-remove --no-install-recommends "${missing[@]}"; } ||
    die "could not install (this needs root or sudo, and the network); as root, type:" \
        "apt-get update && apt-get install --no-install-recommends ${missing[*]}"
}

# python_packages FOLDER PACKAGE...: makes what python3 cannot import yet importable, installed with pip into FOLDER,
# which nothing but PYTHONPATH of this script and its children refers to. Fails, saying why, where pip or what it
# downloads from is missing.
python_packages() {
  local folder=$1 log status=0
  shift
  export PYTHONPATH=$folder${PYTHONPATH:+:$PYTHONPATH}
  python3 -c 'import importlib, sys
for name in sys.argv[1:]: importlib.import_module({"pillow": "PIL"}.get(name, name))' "$@" 2>/dev/null && return
  note "installing $* with pip into $folder"
  log=$(python3 -m pip install --quiet --upgrade --only-binary=:all: --disable-pip-version-check --retries 1 \
    --target "$folder" "$@" 2>&1) || status=$?
  [ "$status" -eq 0 ] || note "could not install $*: $(grep -v '^WARNING' <<<"$log" | tail -n 1)"
  return "$status"
}

# python_environment FOLDER FILE: makes a virtual environment of python3 with the packages that FILE pins; keeps one
# that was made from the same FILE. Where Python.h, pip or what it downloads from is missing it prints the reason and
# fails.
python_environment() {
  local folder=$1 file=$2 header log reason status=0
  cmp -s "$file" "$folder/installed.txt" && "$folder/bin/python3" -c 'import importlib.metadata, sys
for line in open(sys.argv[1]):
    if "==" in line: importlib.metadata.version(line.split("==")[0])' "$file" 2>/dev/null && return
  header=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
  [ -e "$header" ] || { echo "there is no $header (Debian: apt-get install python3-dev)" && return 1; }
  note "installing the packages of ${file#"$root/"} with pip into $folder"
  log=$({ rm -rf "$folder" && python3 -m venv --without-pip "$folder" &&
    env -u PYTHONPATH python3 -m pip --python "$folder/bin/python3" install --quiet --only-binary=:all: \
      --disable-pip-version-check --retries 1 --requirement "$file" && cp "$file" "$folder/installed.txt"; } 2>&1) || status=$?
  [ "$status" -eq 0 ] && return
  reason=$(grep -v '^WARNING' <<<"$log" | tail -n 1)
  grep '^WARNING: Retrying' <<<"$log" >/dev/null && reason="pip cannot reach its package index; $reason"
  echo "$reason"
  return "$status"
}

# Whether an NVIDIA driver is installed (on Windows' Linux it is a library only).
nvidia_driver() {
  [ -e /proc/driver/nvidia/version ] || PATH=$PATH:/sbin ldconfig -p 2>/dev/null | grep -F libcuda.so.1 >/dev/null
}

# Options that build() passes to cmake besides those of the preset.
cmake_options=()

# build PRESET CUDA [TARGET...]: configures the preset and builds the targets (everything, when none is named). CUDA is
# PIPIT_CUDA, which the environment variable of that name overrides; "" leaves it to the preset. All but the kernels for
# GPUs is compiled alike with CUDA and without, so that nothing else is built again when it changes.
build() {
  local preset=$1 command quiet=() cuda=()
  [ -z "$2" ] || cuda=("-DPIPIT_CUDA=${PIPIT_CUDA:-$2}")
  shift 2
  [ -t 2 ] || quiet=(-- --quiet)  # a line per file is for those who watch
  for command in cmake ninja; do
    command -v "$command" >/dev/null || die "'$command' is not in PATH; the build needs what Debian calls: ${build_packages[*]}"
  done
  (
    cd "$root" || exit 1
    cmake --preset "$preset" "${cuda[@]}" "${cmake_options[@]}" >/dev/null || die "configuring failed (preset $preset); the reason stands above"
    note "building (from nothing this takes some minutes)"
    cmake --build --preset "$preset" --parallel "$(nproc)" ${1:+--target "$@"} "${quiet[@]}" >&2 ||
      die "the build failed (preset $preset); the reason stands above"
  )
}
