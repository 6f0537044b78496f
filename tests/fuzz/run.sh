#!/usr/bin/env bash
# What CTest runs to fuzz (tests/fuzz/CMakeLists.txt):
#   run.sh seeds FOLDER WRITER             fills FOLDER/image, image_stb and onnx with small valid files
#   run.sh fuzz NAME BUILD SEEDS           runs BUILD's fuzz_NAME for PIPIT_FUZZ_SECONDS (30) seconds
# A finding is kept as BUILD/findings/NAME-*; once mended, it belongs into tests/fuzz/corpus/NAME.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Debian's libonnx-testdata holds one model per ONNX operator and attribute.
seeds() {
  local folder=$1 writer=$2 models=/usr/share/libonnx-testdata/data file
  rm -rf "$folder"
  mkdir -p "$folder/image" "$folder/onnx" "$folder/arrays"
  "$writer" "$folder/image"
  ln -s image "$folder/image_stb"
  if [ -d "$models" ]; then
    while read -r file; do
      cp "$models/$file" "$folder/onnx/${file//\//-}"
    done < <(find "$models" -name model.onnx -size -8k -printf '%P\n')
  else
    echo "no $models (Debian's libonnx-testdata): only this project's own seeds"
  fi
  echo "$(find "$folder/image" -type f | wc -l) images, $(find "$folder/onnx" -type f | wc -l) models"
}

fuzz() {
  local name=$1 build=$2 folders=("$2/corpus/$1" "$3")
  local fuzzer=$build/tests/fuzz/fuzz_$name
  mkdir -p "$build/corpus/$name" "$build/findings"
  [ ! -d "$here/corpus/$name" ] || folders+=("$here/corpus/$name")
  "$fuzzer" -max_total_time="${PIPIT_FUZZ_SECONDS:-30}" -max_len=65536 -rss_limit_mb=2048 -timeout=10 \
    -print_final_stats=1 -artifact_prefix="$build/findings/$name-" "${folders[@]}"
}

"$@"
