# How every pipit target is compiled, in one place.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Flags for our own code: used privately by every target, never exported to consumers.
add_library(pipit_flags INTERFACE)
target_compile_features(pipit_flags INTERFACE cxx_std_20)
# -fno-math-errno: sqrt and friends need not set errno, so they vectorize; results are unchanged.
# -fno-trapping-math: nobody reads the flags of floating-point exceptions, so GCC may compute both sides of a choice,
# without which it vectorizes no loop that bounds its argument, as exp does; results are unchanged. Clang's default.
# -ffp-contract=off: the same source gives the same bits whatever ISA a function is compiled for;
# kernels that want FMA say so with intrinsics.
target_compile_options(pipit_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor
                                             -Wold-style-cast
                                             -Wno-missing-field-initializers -fno-math-errno -fno-trapping-math
                                             -ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees impossible overlaps and sizes inside std::string at -O3 (GCC bug 105651).
  target_compile_options(pipit_flags INTERFACE
                         "$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-stringop-overflow;-Wno-array-bounds>")
endif()
# A section for every function, so that the linker can leave out those that nothing uses.
target_compile_options(pipit_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections -fdata-sections>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # Below half a gigabyte the compiler need not collect garbage: a seventh of its time on files with many templates.
  target_compile_options(pipit_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
endif()
if(PIPIT_WERROR)
  target_compile_options(pipit_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
# Sanitizers look at the libraries, the command and the fuzz targets. Tests are linked with them, not compiled: gtest's
# templates would take as long to build again.
add_library(pipit_sanitizers INTERFACE)
if(PIPIT_SANITIZE)
  target_compile_options(pipit_sanitizers INTERFACE -fsanitize=${PIPIT_SANITIZE} -fno-sanitize-recover=all
                                                    -fno-omit-frame-pointer
                                                    # instrumented loops do not vectorize, whatever a pragma asks
                                                    $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>)
  target_link_options(pipit_sanitizers INTERFACE -fsanitize=${PIPIT_SANITIZE})
endif()
if(PIPIT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "PIPIT_FUZZ needs clang (libFuzzer); configure with -DCMAKE_CXX_COMPILER=clang++")
  endif()
  target_compile_options(pipit_sanitizers INTERFACE -fsanitize=fuzzer-no-link)
endif()

# What nearly every file includes, parsed once for each target: a quarter of the compiler's time. Every file includes
# what it uses all the same: clang-tidy reads files without.
set(pipit_common_headers <algorithm> <cmath> <cstdint> <filesystem> <functional> <map> <memory> <optional> <set> <span>
                         <string> <string_view> <vector> <fmt/core.h>)
# pipit_precompile(TARGET header…): these, and more of its own. pipit_precompile(TARGET AS OTHER): those that OTHER has
# precompiled, where both are compiled with the same options; parsing them takes 5 to 8 s.
function(pipit_precompile target)
  if("${ARGV1}" STREQUAL AS)
    target_precompile_headers(${target} REUSE_FROM ${ARGV2})
    return()
  endif()
  list(TRANSFORM pipit_common_headers REPLACE "^<(.*)>$" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>" OUTPUT_VARIABLE common)
  target_precompile_headers(${target} PRIVATE ${common} ${ARGN})
endfunction()

# pipit_optimize_size(TARGET): code that reads, decides and prints. About 40 % smaller than with -O3.
function(pipit_optimize_size target)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:-Os>)
endfunction()

# pipit_library(NAME [SIZE] DEPENDS targets… PRIVATE targets… SOURCES files… SMALL files… SMALL_HEADERS headers…): the
# static library pipit::NAME of one folder. A folder's link line states which folders it may include
# (.ci/check_layering.py enforces it). SMALL are sources where speed does not matter, which a target pipit_NAME_small
# compiles; for these SMALL_HEADERS are precompiled as well. With SIZE all sources are such.
function(pipit_library name)
  cmake_parse_arguments(arg "SIZE" "" "DEPENDS;PRIVATE;SOURCES;SMALL;SMALL_HEADERS" ${ARGN})
  add_library(pipit_${name} STATIC ${arg_SOURCES})
  add_library(pipit::${name} ALIAS pipit_${name})
  set_target_properties(pipit_${name} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY PIPIT_LIBRARIES pipit_${name})
  set(targets pipit_${name})
  if(arg_SIZE)
    pipit_optimize_size(pipit_${name})
  endif()
  if(arg_SMALL)
    add_library(pipit_${name}_small OBJECT ${arg_SMALL})
    pipit_optimize_size(pipit_${name}_small)
    target_sources(pipit_${name} PRIVATE $<TARGET_OBJECTS:pipit_${name}_small>)
    list(APPEND targets pipit_${name}_small)
  endif()
  foreach(target IN LISTS targets)
    set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
                                               VISIBILITY_INLINES_HIDDEN ON)
    target_compile_features(${target} PUBLIC cxx_std_20)
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(${target} PUBLIC ${arg_DEPENDS} PRIVATE $<BUILD_INTERFACE:pipit_flags>
                                           $<BUILD_INTERFACE:pipit_sanitizers> ${arg_PRIVATE})
    string(REPLACE "_${name}" "_engine" first ${target})  # optimized alike
    if(arg_SIZE)
      set(first pipit_engine_small)
    endif()
    if(target STREQUAL first OR (arg_SMALL_HEADERS AND target MATCHES "_small$"))
      pipit_precompile(${target} ${arg_SMALL_HEADERS})
    else()
      pipit_precompile(${target} AS ${first})
    endif()
  endforeach()
  if(CMAKE_SYSTEM_NAME STREQUAL Linux)
    # A shared library that is made of this one exports nothing of it.
    target_link_options(pipit_${name} INTERFACE LINKER:--exclude-libs,libpipit_${name}.a)
  endif()
endfunction()
