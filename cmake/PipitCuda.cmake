# Finds the CUDA toolkit as -DPIPIT_CUDA says and sets PIPIT_HAVE_CUDA.

string(TOUPPER "${PIPIT_CUDA}" _pipit_cuda)
if(NOT _pipit_cuda MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "PIPIT_CUDA is '${PIPIT_CUDA}': expected ON, OFF or AUTO")
endif()

set(PIPIT_HAVE_CUDA OFF)
if(NOT _pipit_cuda STREQUAL "OFF")
  find_package(CUDAToolkit 12.0 QUIET)
  if(CUDAToolkit_FOUND)
    set(PIPIT_HAVE_CUDA ON)
    if(NOT CMAKE_CUDA_COMPILER)
      set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
    endif()
    # Ampere, and as PTX all later ones; 90a: the instructions that only Hopper has, whose PTX no other GPU could run.
    set(CMAKE_CUDA_ARCHITECTURES 80 90a-real CACHE STRING "GPU architectures to compile for")
    enable_language(CUDA)
    # CMake before 3.26 does not know how nvcc is asked for C++20.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    # A third of the size of the kernels, which are decompressed when they are loaded.
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
      string(APPEND CMAKE_CUDA_FLAGS " --compress-mode=size")
    endif()
    # ptxas names the function that spills and the bytes; as an error where warnings are errors.
    set(PIPIT_REPORT_SPILLS -Xptxas=-warn-spills$<$<BOOL:${PIPIT_WERROR}>:,-Werror>)
    message(STATUS "CUDA toolkit ${CUDAToolkit_VERSION} found: GPU support on")
  elseif(_pipit_cuda STREQUAL "ON")
    message(FATAL_ERROR "PIPIT_CUDA=ON but no CUDA toolkit (12.0 or later) was found. Install it, set "
                        "CUDAToolkit_ROOT, or configure with -DPIPIT_CUDA=OFF")
  else()
    message(STATUS "No CUDA toolkit found: GPU support off")
  endif()
endif()

# pipit_link_cuda(TARGET sources…): links the CUDA runtime. Only the sources see its headers, so that all others are
# compiled alike with CUDA and without, and a folder that changes from one to the other keeps what it has built.
function(pipit_link_cuda target)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:$<LINK_ONLY:CUDA::cudart_static>> $<INSTALL_INTERFACE:pipit::cudart>)
  set(sources ${ARGN})
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  list(TRANSFORM CUDAToolkit_INCLUDE_DIRS PREPEND -isystem OUTPUT_VARIABLE includes)
  set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_OPTIONS ${includes})
endfunction()
