#include "layers/cpu/vector/row_kernels_isa.h"

namespace pipit::internal {

namespace {

#include "layers/cpu/vector/lanes_baseline.h"

#include "layers/cpu/vector/row_kernels_body.h"

}  // namespace

const RowKernels row_kernels_baseline = kernels_of_lanes();

}  // namespace pipit::internal
