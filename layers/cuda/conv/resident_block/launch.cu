// Kernels of the candidate "resident_block" and their launch.
#include "layers/cuda/conv/resident_block/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

const void* address_of(auto kernel) {
  return reinterpret_cast<const void*>(kernel);
}

template <typename Sum>
const void* function_of(const BlockPlan& plan) {
  using Form = BlockForm;
  using Adds = BlockAdds;
  if (plan.form == Form::basic)
    return plan.adds == Adds::x ? address_of(&run_resident_block<Sum, Form::basic, Adds::x>)
                                : address_of(&run_resident_block<Sum, Form::basic, Adds::nothing>);
  switch (plan.adds) {
    case Adds::x:
      return address_of(&run_resident_block<Sum, Form::bottleneck, Adds::x>);
    case Adds::projection:
      return address_of(&run_resident_block<Sum, Form::bottleneck, Adds::projection>);
    case Adds::tail:
      return address_of(&run_resident_block<Sum, Form::bottleneck, Adds::tail>);
    default:
      return address_of(&run_resident_block<Sum, Form::bottleneck, Adds::nothing>);
  }
}

const void* function_of(const ResidentBlockArgs& args) {
  if (args.plan.form != BlockForm::streamed) {
    if (args.plan.element_bytes == 1) return function_of<std::int32_t>(args.plan);
    return args.plan.bf16 ? function_of<BfloatSum>(args.plan) : function_of<float>(args.plan);
  }
  if (args.plan.adds == BlockAdds::x)
    return args.small_sums ? address_of(&run_streamed_block<true, true>)
                           : address_of(&run_streamed_block<true, false>);
  return args.small_sums ? address_of(&run_streamed_block<false, true>)
                         : address_of(&run_streamed_block<false, false>);
}

}  // namespace

cudaError_t prepare_resident_block(const ResidentBlockArgs& args) {
  return allow_shared(function_of(args), kBlockMaxShared - kBlockReserved + 1024);
}

cudaError_t launch_resident_block(const ResidentBlockArgs& args, cudaStream_t stream) {
  LaunchShape shape{dim3(static_cast<unsigned>(args.plan.workers)),
                    dim3(static_cast<unsigned>(args.plan.threads()))};
  shape.shared_bytes = static_cast<std::size_t>(args.plan.shared_bytes() - kBlockReserved + 1024);
  shape.overlap = true;
  return launch_kernel(function_of(args), shape, stream, args);
}

}  // namespace pipit::internal::cuda
