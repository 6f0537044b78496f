# Run by cpack before it makes Debian packages, in each of their folders: the documents that Debian's policy wants, and
# manual pages as it wants them. Uses the variables of CPackConfig.cmake.

if(NOT CPACK_GENERATOR STREQUAL DEB)
  return()
endif()
find_program(GZIP gzip REQUIRED)

# write_compressed(FILE SOURCE): without a name and a date inside, so that the same content gives the same bytes.
function(write_compressed file source)
  execute_process(COMMAND ${GZIP} -9n -c ${source} OUTPUT_FILE ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # of SOURCE_DATE_EPOCH, where that is set
foreach(folder IN ITEMS library dev tool)
  string(TOUPPER ${folder} upper)
  set(root ${CPACK_TEMPORARY_DIRECTORY}/${folder}/usr)
  if(NOT EXISTS ${root})
    continue()
  endif()
  set(documents ${root}/share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  file(MAKE_DIRECTORY ${documents})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/copyright.in ${documents}/copyright @ONLY)
  file(READ ${CPACK_PIPIT_SOURCE}/THIRD_PARTY_NOTICES.md notices)
  file(APPEND ${documents}/copyright "${notices}")
  configure_file(${CMAKE_CURRENT_LIST_DIR}/changelog.in ${documents}/changelog @ONLY)
  write_compressed(${documents}/changelog.Debian.gz ${documents}/changelog)
  write_compressed(${documents}/changelog.gz ${CPACK_PIPIT_SOURCE}/CHANGELOG.md)
  file(REMOVE ${documents}/changelog)
  # Where Debian's zsh looks.
  if(EXISTS ${root}/share/zsh/site-functions)
    file(RENAME ${root}/share/zsh/site-functions ${root}/share/zsh/vendor-completions)
  endif()
  if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/${folder}.lintian-overrides)
    configure_file(${CMAKE_CURRENT_LIST_DIR}/${folder}.lintian-overrides
                   ${root}/share/lintian/overrides/${CPACK_DEBIAN_${upper}_PACKAGE_NAME} COPYONLY)
  endif()
  file(GLOB pages ${root}/share/man/man1/*.1)
  foreach(page IN LISTS pages)
    write_compressed(${page}.gz ${page})
    file(REMOVE ${page})
  endforeach()
endforeach()
