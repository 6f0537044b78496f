#!/usr/bin/env bash
# In a Debian system that has nothing of pipit: installs the packages of `cpack -G DEB`, runs the command, compiles
# programs in C and C++ with the -dev package, and removes all again. Needs root. `.ci/bare.sh packages` calls it.
#
#   tests/package/debian.sh FOLDER_WITH_PACKAGES EXAMPLES
set -euo pipefail
packages=$(realpath "$1") examples=$(realpath "$2") scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
die() { echo "debian.sh: $*" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
install() { apt-get -qq install --no-install-recommends "$@" >"$scratch/apt.log" 2>&1 || { cat "$scratch/apt.log"; return 1; }; }

echo "command:"
apt-get -qq update
install "$packages"/libpipit0_*.deb "$packages"/pipit_*.deb
[ "$(ldd /usr/bin/pipit | awk '/libpipit/ { print $1 }')" = libpipit.so.0 ] || die "pipit is not linked with libpipit.so.0"
! ldd /usr/bin/pipit | grep 'not found' || die "a library is missing"
pipit --version
{
  printf 'BM\x36\x0c\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x20\0\0\0\x20\0\0\0\x01\0\x18\0'
  head -c 3096 /dev/zero
} >"$scratch/black.bmp"
pipit classify resnet20-cifar10 "$scratch/black.bmp" --topk 1 | tee "$scratch/answer"
expected=$(awk '$1 == 1 { print $NF }' "$scratch/answer")
[ -n "$expected" ] || die "pipit classify names no class"
[ ! -e /usr/include/pipit ] || die "headers are installed without libpipit-dev"

echo "development files:"
install "$packages"/libpipit-dev_*.deb gcc g++ pkg-config
for package in libpipit0 libpipit-dev pipit; do
  for file in copyright changelog.gz changelog.Debian.gz; do
    [ -s "/usr/share/doc/$package/$file" ] || die "$package has no $file"
  done
done
# shellcheck disable=SC2046  # words
gcc -std=c99 -pedantic -Wall -Wextra -Werror "$examples/label.c" $(pkg-config --cflags --libs pipit-c) -o "$scratch/label"
"$scratch/label" resnet20-cifar10 "$scratch/black.bmp" | tee "$scratch/answer"
[ "$(awk 'NR == 1 { print $NF }' "$scratch/answer")" = "$expected" ] || die "a program in C names another class first"
mkdir "$scratch/photos"
cp "$scratch/black.bmp" "$scratch/photos"
for package in pipit pipit-static; do
  # shellcheck disable=SC2046
  g++ -Wall -Wextra -Werror "$examples/classify.cpp" $(pkg-config --cflags --libs "$package") -o "$scratch/classify"
  "$scratch/classify" resnet20-cifar10 "$scratch/photos" | grep "^black.bmp .*$expected" ||
    die "a program in C++ with pkg-config $package names another class first"
done

echo "removal:"
apt-get -qq purge pipit libpipit-dev libpipit0 >"$scratch/apt.log" 2>&1 || { cat "$scratch/apt.log"; exit 1; }
left=$(find /usr /etc /var/lib -path /var/lib/dpkg -prune -o -name '*pipit*' -print)
[ -z "$left" ] || die "left behind: $left"
echo "nothing is left"
