#!/usr/bin/env bash
# Classifies sample photographs with the model that pipit ships and shows where the time goes: installs what
# is missing, builds into build/, fetches the photographs (kept in build/photos), runs `pipit classify`.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

photos=(chelsea.png rocket.jpg coffee.png astronaut.png)
folder=build/photos
own="or classify a photograph of your own: build/pipit classify resnet20-cifar10 PHOTO.jpg"

# The photographs are part of Debian's python3-skimage, which is unpacked but not installed.
fetch_photos() {
  local name complete=yes
  for name in "${photos[@]}"; do
    [ -s "$folder/$name" ] || complete=no
  done
  [ "$complete" = no ] || return 0
  debian_like || die "the sample photographs come from a Debian package, and this is no Debian-like system; $own"
  note "fetching sample photographs"
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  download || { apt_get update && download; } ||
    die "could not download python3-skimage, which holds the photographs: check network and apt sources; $own"
  dpkg-deb -x "$scratch"/python3-skimage_*.deb "$scratch"
  mkdir -p "$folder"
  for name in "${photos[@]}"; do
    find "$scratch" -path "*/skimage/data/$name" -exec cp {} "$folder/$name.part" \;
    [ -s "$folder/$name.part" ] || die "this version of python3-skimage has no $name"
    mv "$folder/$name.part" "$folder/$name"
  done
}

# As root, apt would warn that its sandbox user cannot write to the scratch folder.
download() {
  (cd "$scratch" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download python3-skimage >&2)
}

install_packages "${build_packages[@]}"
build default pipit_command
cd "$root"
fetch_photos

cat <<'EOF'
chelsea.png shows a cat, which is one of the ten classes of resnet20-cifar10. The other photographs show
things that it has no class for, so whatever it answers for them is wrong.

EOF
build/pipit classify resnet20-cifar10 "${photos[@]/#/$folder/}" --topk 5 --profile
