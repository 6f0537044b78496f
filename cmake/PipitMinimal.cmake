# -DPIPIT_MINIMAL=ON: a library that only loads and runs models, as small as it can be. It has no tools
# (pipit::tools, pipit_calibrate() and so on), no built-in model, no command and no tests, and holds kernels for one
# instruction set, PIPIT_MINIMAL_ISA, for which all of it is compiled. A program that calls what is left out does not
# link. docs/c-api.md lists what there is.

option(PIPIT_MINIMAL "Only load and run models: no tools, no built-in model, one instruction set" OFF)
if(NOT PIPIT_MINIMAL)
  return()
endif()
set(PIPIT_MINIMAL_ISA "" CACHE STRING "For PIPIT_MINIMAL: baseline, avx2 or avx512 (empty: avx2 on x86-64)")
set_property(CACHE PIPIT_MINIMAL_ISA PROPERTY STRINGS baseline avx2 avx512)
set(pipit_minimal_isa "${PIPIT_MINIMAL_ISA}")
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  if(NOT pipit_minimal_isa MATCHES "^(baseline)?$")
    message(FATAL_ERROR "PIPIT_MINIMAL_ISA is '${PIPIT_MINIMAL_ISA}': only baseline is possible on ${CMAKE_SYSTEM_PROCESSOR}")
  endif()
  set(pipit_minimal_isa baseline)
elseif(pipit_minimal_isa STREQUAL "")
  set(pipit_minimal_isa avx2)
elseif(NOT pipit_minimal_isa MATCHES "^(baseline|avx2|avx512)$")
  message(FATAL_ERROR "PIPIT_MINIMAL_ISA is '${PIPIT_MINIMAL_ISA}': expected baseline, avx2 or avx512")
endif()

foreach(part TESTS APPS FUZZ)
  set(PIPIT_${part} OFF)
endforeach()
set(PIPIT_CUDA OFF)

target_compile_definitions(pipit_flags INTERFACE PIPIT_MINIMAL)
# No tables to unwind from any instruction: exceptions need those of calls only.
target_compile_options(pipit_flags INTERFACE -fno-asynchronous-unwind-tables)
# The kernels of the other instruction sets. layers/cpu/quantized/minimal_isa.cpp defines what refers to them.
set(pipit_minimal_excluded "_(avx512[a-z0-9]*|amx|amx_bf16)\\.cpp$|_baseline\\.cpp$")
if(pipit_minimal_isa STREQUAL avx2)
  target_compile_options(pipit_flags INTERFACE -mavx2 -mfma -mf16c)
elseif(pipit_minimal_isa STREQUAL avx512)
  target_compile_options(pipit_flags INTERFACE -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  set(pipit_minimal_excluded "_avx512(fp16|bf16)\\.cpp$|_(amx|amx_bf16)\\.cpp$|_baseline\\.cpp$|(tile|gemm|row_kernels)_avx2\\.cpp$")
else()
  set(pipit_minimal_excluded "_(avx2|avx512[a-z0-9]*|amx|amx_bf16)\\.cpp$")
endif()
message(STATUS "A minimal library for ${pipit_minimal_isa}")
