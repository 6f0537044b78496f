#include <new>

#include "apps/command.h"
#include "apps/commands/commands.h"
#include "apps/display/terminal.h"
#include "apps/out_of_memory.h"

int main(int argc, char** argv) {
  using namespace pipit::internal::apps;
  try {
    survive_lack_of_memory();
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    return kExitRuntime;
  }
  return run_command(argc, argv);
}
