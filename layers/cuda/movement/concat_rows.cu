// The kernels of rows side by side that are compiled, and their launch.
#include <algorithm>

#include "engine/base/ceil_div.h"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/movement/concat_rows_kernel.cuh"

namespace pipit::internal::cuda {

namespace {

using namespace concat;

template <typename Then>
cudaError_t launch(const ConcatRowsArgs& args, bool overlap, cudaStream_t stream) {
  // As many threads as the GPU holds at once, of a few rows at least.
  constexpr int kResident = 2048;
  const int units = args.columns / static_cast<int>(sizeof(typename Then::Unit));
  const auto row_step = static_cast<int>(
      std::min<std::int64_t>(ceil_div(args.rows, kAtOnce),
                             std::max<std::int64_t>(std::int64_t{args.processors} * kResident / units, 1)));
  const std::int64_t blocks = ceil_div(std::int64_t{row_step} * units, kThreads);
  return launch_kernel(copy_rows<Then>, {dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, overlap},
                       stream, args, units, row_step);
}

// Whether every part begins and ends on a multiple of `unit` bytes.
bool divides(const ConcatRowsArgs& args, unsigned unit) {
  std::uintptr_t all = reinterpret_cast<std::uintptr_t>(args.y) | static_cast<std::uintptr_t>(args.pitch);
  for (int i = 0; i < args.count; ++i)
    all |= reinterpret_cast<std::uintptr_t>(args.part[i].x) | static_cast<unsigned>(args.part[i].end);
  return all % unit == 0;
}

}  // namespace

cudaError_t concat_rows_overlaps(bool& result) {
  return can_overlap(reinterpret_cast<const void*>(&copy_rows<Unchanged<uint4>>), result);
}

cudaError_t launch_concat_rows(ConcatThen then, const ConcatRowsArgs& args, bool overlap,
                               cudaStream_t stream) {
  const auto wide_or_one = [&]<typename Wide, typename One>() {
    return divides(args, sizeof(typename Wide::Unit)) ? launch<Wide>(args, overlap, stream)
                                                      : launch<One>(args, overlap, stream);
  };
  switch (then) {
    case ConcatThen::halves:
      return wide_or_one.operator()<Scaled<__half, 8>, Scaled<__half, 1>>();
    case ConcatThen::floats:
      return wide_or_one.operator()<Scaled<float, 4>, Scaled<float, 1>>();
    case ConcatThen::bytes:
      return wide_or_one.operator()<Requantized<8>, Requantized<1>>();
    case ConcatThen::nothing:
      break;
  }
  if (divides(args, 16)) return launch<Unchanged<uint4>>(args, overlap, stream);
  if (divides(args, 8)) return launch<Unchanged<uint2>>(args, overlap, stream);
  if (divides(args, 4)) return launch<Unchanged<unsigned>>(args, overlap, stream);
  if (divides(args, 2)) return launch<Unchanged<unsigned short>>(args, overlap, stream);
  return launch<Unchanged<unsigned char>>(args, overlap, stream);
}

}  // namespace pipit::internal::cuda
