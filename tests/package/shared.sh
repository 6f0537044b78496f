#!/usr/bin/env bash
# Installs a build into a scratch prefix and uses its shared library from outside: programs in C++ and C by CMake and by
# pkg-config, without a package of another library, and what they are linked with. Also the C program with the static
# libraries alone, and a shared library made of these, which must export nothing of them.
#
#   tests/package/shared.sh BUILD_FOLDER SCRATCH_FOLDER CXX CC
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(realpath "$1") scratch=$(realpath -m "$2") cxx=$3 cc=$4
prefix=$scratch/prefix
rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$prefix" >"$scratch/install.log"
library=$(find "$prefix" -name libpipit.so.0)
folder=$(dirname "$library")
die() { echo "$*"; exit 1; }

echo "library:"
readelf -d "$library" | grep -q 'SONAME.*\[libpipit\.so\.0\]' || die "its name is not libpipit.so.0"
[ "$(readlink "$folder/libpipit.so")" = libpipit.so.0 ] || die "libpipit.so does not lead to libpipit.so.0"
[ -e "$folder/libpipit.so.0.1.0" ] || die "libpipit.so.0.1.0 is missing"
! readelf -d "$library" | grep -E 'RPATH|RUNPATH|TEXTREL' || die "it has paths of the build, or depends on its position"
ls -l "$folder/libpipit.so.0.1.0" | awk '{ print $5, "bytes" }'

{
  printf 'BM\x36\x0c\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x20\0\0\0\x20\0\0\0\x01\0\x18\0'
  head -c 3096 /dev/zero
} >"$scratch/black.bmp"
model=resnet20-cifar10
expected=$("$prefix/bin/pipit" classify "$model" "$scratch/black.bmp" --topk 1 | awk '$1 == 1 { print $NF }')
[ -n "$expected" ] || die "pipit classify names no class"

# check PROGRAM yes|no: it names the class first, an error has its exit code, and it is linked with libpipit.so or not.
check() {
  local code=0 linked=no
  [ "$("$1" "$model" "$scratch/black.bmp" | awk 'NR == 1 { print $NF }')" = "$expected" ] ||
    die "$1 does not begin with '$expected', as pipit classify does"
  "$1" "$model" "$scratch/none.bmp" 2>/dev/null || code=$?
  [ "$code" -eq 1 ] || die "$1 without an image ends with $code"
  ! readelf -d "$1" | grep -q 'NEEDED.*libpipit' || linked=yes
  [ "$linked" = "$2" ] || die "$1 is linked with libpipit.so: $linked"
  echo "$(basename "$1"): $expected"
}

echo "CMake, C and C++:"
awk '$0 == "```cpp" { inside = 1; next } /^```/ { inside = 0 } inside' "$here/../../README.md" >"$scratch/label.cpp"
cp "$here/../../examples/label.c" "$here/errors.cpp" "$scratch"
project() { # FOLDER LANGUAGES LINES
  mkdir -p "$scratch/$1"
  { printf 'cmake_minimum_required(VERSION 3.25)\nproject(consumer LANGUAGES %s)\n' "$2"; cat; } >"$scratch/$1/CMakeLists.txt"
  cmake -S "$scratch/$1" -B "$scratch/$1/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" -Wno-dev "${@:3}" >"$scratch/$1.log" 2>&1 ||
    { cat "$scratch/$1.log"; return 1; }
  cmake --build "$scratch/$1/build" >>"$scratch/$1.log" 2>&1 || { cat "$scratch/$1.log"; return 1; }
}
# Neither fmt nor any other package is looked for.
alone=()
for package in fmt Protobuf ZLIB JPEG PNG Threads CUDAToolkit; do alone+=("-DCMAKE_DISABLE_FIND_PACKAGE_$package=ON"); done
project only_c C "${alone[@]}" <<'END'
find_package(pipit 0.1 REQUIRED COMPONENTS shared)
set(CMAKE_C_FLAGS "-std=c99 -pedantic -Wall -Wextra -Werror")
add_executable(label_c ../label.c)
target_link_libraries(label_c PRIVATE pipit::shared)
END
check "$scratch/only_c/build/label_c" yes
project both "C CXX" "${alone[@]}" <<'END'
find_package(pipit 0.1 REQUIRED COMPONENTS shared)
foreach(program label errors)
  add_executable(${program} ../${program}.cpp)
  target_link_libraries(${program} PRIVATE pipit::shared)
endforeach()
END
check "$scratch/both/build/label" yes
"$scratch/both/build/errors"
if project nonsense CXX <<<'find_package(pipit REQUIRED COMPONENTS nonsense)' >/dev/null; then
  die "find_package() accepts a component that does not exist"
fi
project static "C CXX" -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON <<'END'
find_package(pipit REQUIRED COMPONENTS static)
if(TARGET pipit::shared)
  message(FATAL_ERROR "pipit::shared, which nobody asked for")
endif()
add_executable(label_c ../label.c)
target_link_libraries(label_c PRIVATE pipit::pipit)
set_target_properties(label_c PROPERTIES LINKER_LANGUAGE CXX)
add_executable(errors ../errors.cpp)
target_link_libraries(errors PRIVATE pipit::pipit)
file(WRITE ${CMAKE_BINARY_DIR}/plugin.cpp "#include <pipit/pipit.h>
#include <pipit/pipit_c.h>
extern \"C\" const char* plugin() { return pipit_version() + pipit::Shape{1}.rank() - 1; }")
add_library(plugin SHARED ${CMAKE_BINARY_DIR}/plugin.cpp)
target_link_libraries(plugin PRIVATE pipit::pipit)
END
check "$scratch/static/build/label_c" no
"$scratch/static/build/errors"
exported=$(nm -D --defined-only "$scratch/static/build/libplugin.so" | awk '$2 == "T" { print $3 }' | tr '\n' ' ')
[ "$exported" = "plugin " ] || die "a library made of the static ones exports $exported"

echo "the command, linked with it, in a prefix that was moved:"
for component in command_shared library; do
  cmake --install "$build" --prefix "$scratch/command" --component "$component" >>"$scratch/install.log"
done
mv "$scratch/command" "$scratch/moved"
readelf -d "$scratch/moved/bin/pipit" | grep -q 'NEEDED.*libpipit\.so\.0' || die "it is not linked with libpipit.so.0"
for arguments in "classify $model $scratch/black.bmp" "inspect $model --why --json" "help --format markdown" "classify"; do
  outputs=()
  for program in "$prefix/bin/pipit" "$scratch/moved/bin/pipit"; do
    # shellcheck disable=SC2086  # words
    outputs+=("$("$program" $arguments 2>&1; echo "exit code $?")")
  done
  [ "${outputs[0]}" = "${outputs[1]}" ] || die "pipit $arguments prints something else: ${outputs[1]}"
  echo "pipit $arguments: the same"
done

echo "loaded by a program that knows nothing of it:"
python3 - "$library" "$model" "$scratch/black.bmp" "$expected" <<'END'
import ctypes
import sys

_, path, model, image, expected = sys.argv
pipit = ctypes.CDLL(path)
pipit.pipit_classifier_load.restype = pipit.pipit_classifier_classify_file.restype = ctypes.c_void_p
pipit.pipit_predictions_label.restype = pipit.pipit_status_message.restype = ctypes.c_char_p
status = ctypes.c_void_p()
classifier = ctypes.c_void_p(pipit.pipit_classifier_load(model.encode(), None, ctypes.byref(status)))
answer = ctypes.c_void_p(pipit.pipit_classifier_classify_file(classifier, image.encode(), 5, ctypes.byref(status)))
assert status.value is None, pipit.pipit_status_message(status)
label = pipit.pipit_predictions_label(answer, ctypes.c_size_t(0)).decode()
assert label.endswith(expected), label
assert not pipit.pipit_classifier_load(b"no such model", None, ctypes.byref(status))
assert pipit.pipit_status_code(status) == 1
pipit.pipit_predictions_free(answer)
pipit.pipit_classifier_free(classifier)
print(label)
END

echo "pkg-config:"
PKG_CONFIG_PATH=$folder/pkgconfig
export PKG_CONFIG_PATH
strict=(-Wall -Wextra -Werror)
read -ra flags <<<"$(pkg-config --cflags --libs pipit-c)"
"$cc" -std=c99 -pedantic "${strict[@]}" "$scratch/label.c" "${flags[@]}" -o "$scratch/label_c"
check "$scratch/label_c" yes
read -ra flags <<<"$(pkg-config --cflags --libs pipit)"
"$cxx" "${strict[@]}" "$scratch/label.cpp" "${flags[@]}" -o "$scratch/label"
check "$scratch/label" yes
read -ra flags <<<"$(pkg-config --cflags --libs pipit-static)"
"$cxx" "${strict[@]}" "$scratch/label.cpp" "${flags[@]}" -o "$scratch/label_static"
check "$scratch/label_static" no
# With -static the linker takes libpipit.a for -lpipit. Not every library of the system is there for that, so here it is
# pipit's only.
read -ra flags <<<"$(pkg-config --static --cflags --libs pipit-c | sed 's/-lpipit /-l:libpipit.a /')"
"$cc" -std=c99 "$scratch/label.c" "${flags[@]}" -o "$scratch/label_static_c"
check "$scratch/label_static_c" no
