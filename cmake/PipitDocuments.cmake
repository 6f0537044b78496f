# Manual pages and completion for bash and zsh, written by the command from its declarations. What is built for another
# machine cannot be asked.
if(CMAKE_CROSSCOMPILING)
  return()
endif()

set(documents ${PROJECT_BINARY_DIR}/documents)
file(MAKE_DIRECTORY ${documents}/man1)
set(pipit $<TARGET_FILE:pipit_command>)
add_custom_command(
  OUTPUT ${documents}/pipit.bash ${documents}/_pipit ${documents}/man1/pipit.1
  COMMAND ${pipit} help --format bash > ${documents}/pipit.bash
  COMMAND ${pipit} help --format zsh > ${documents}/_pipit
  COMMAND ${pipit} help --format man --output ${documents}/man1
  DEPENDS pipit_command
  COMMENT "Manual pages and completion"
  VERBATIM)
add_custom_target(pipit_documents ALL DEPENDS ${documents}/pipit.bash)

install(DIRECTORY ${documents}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT command_documents)
install(FILES ${documents}/pipit.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME pipit
        COMPONENT command_documents)
install(FILES ${documents}/_pipit DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT command_documents)
