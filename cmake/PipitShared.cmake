# libpipit.so: the objects of the static libraries once more, without what is not public.

get_property(libraries GLOBAL PROPERTY PIPIT_LIBRARIES)
set(objects "")
foreach(library IN LISTS libraries)
  list(APPEND objects $<TARGET_OBJECTS:${library}>)
  if(TARGET ${library}_small)
    list(APPEND objects $<TARGET_OBJECTS:${library}_small>)
  endif()
endforeach()

set(exports ${CMAKE_CURRENT_LIST_DIR}/pipit.map)
add_library(pipit_shared SHARED ${objects})
add_library(pipit::shared ALIAS pipit_shared)
set_target_properties(pipit_shared PROPERTIES OUTPUT_NAME pipit EXPORT_NAME shared VERSION ${PROJECT_VERSION}
                                              SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE CXX
                                              LINK_DEPENDS ${exports})
target_include_directories(pipit_shared PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# Of these only the libraries of others are needed: all objects are here.
target_link_libraries(pipit_shared PRIVATE pipit::pipit)
if(PIPIT_MINIMAL AND CMAKE_SYSTEM_NAME STREQUAL Linux AND NOT CMAKE_CROSSCOMPILING)
  # As in apps/CMakeLists.txt: 0.1 MB of relocations become 10 kB.
  include(CheckCXXSourceRuns)
  set(CMAKE_REQUIRED_LINK_OPTIONS LINKER:-z,pack-relative-relocs)
  check_cxx_source_runs("static int x; int* p = &x; int main() { return p == &x ? 0 : 1; }" PIPIT_PACKS_RELOCATIONS)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
  if(PIPIT_PACKS_RELOCATIONS)
    target_link_options(pipit_shared PRIVATE LINKER:-z,pack-relative-relocs)
  endif()
endif()
target_link_options(pipit_shared PRIVATE LINKER:--version-script=${exports} LINKER:--gc-sections LINKER:-z,defs)
