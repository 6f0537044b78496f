# pipit_embed(SOURCE NAME FILE): the file's bytes become part of SOURCE, by its PIPIT_NAME_PATH (engine/base/embed.h).
function(pipit_embed source name file)
  cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  set_property(SOURCE ${source} APPEND PROPERTY OBJECT_DEPENDS ${file})
  set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS "PIPIT_${name}_PATH=\"${file}\"")
endfunction()
