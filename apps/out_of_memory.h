// The end of memory in places that no try surrounds.
#pragma once

namespace pipit::internal::apps {

/// Ends of memory that would be an abort or a segmentation fault are exit code 1 and a line on stderr: what a
/// destructor, another noexcept function, the making of an exception or a library's constructors before main() do not
/// get, which needs no call; and a stack that cannot grow, for which this grows it at once. Call it first. Throws
/// std::bad_alloc where there is no room for the stack.
void survive_lack_of_memory();

}  // namespace pipit::internal::apps
