// The whole `pipit` command, for its program and for the Python package.
#pragma once

namespace pipit::internal::apps {

/// Does what the arguments say, the first of which is the name of the program, and returns the exit code. Prints errors
/// and throws none.
int run_command(int argc, char** argv);

}  // namespace pipit::internal::apps
