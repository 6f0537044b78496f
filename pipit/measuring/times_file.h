// The JSON of profile and bench, read again.
#pragma once

#include <string>
#include <vector>

#include "pipit/measuring/comparison.h"

namespace pipit::internal::detail {

/// What the file holds: a JSON document of `pipit profile` or `pipit bench`, or several one after the other, each of a
/// process of its own. Rows of several that are of one model, device, precision, batch and number of threads are one
/// result; rows with an error are left out. Throws Error, beginning with the path, for what is not there, other
/// documents, other versions of the schema, and values that are no times.
std::vector<TimedRuns> read_times(const std::string& path);

}  // namespace pipit::internal::detail
