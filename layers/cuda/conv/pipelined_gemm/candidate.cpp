// Candidate "pipelined_gemm" of QConv: INT8 convolutions of many positions on Hopper.
#include <fmt/format.h>

#include <array>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/pipelined_gemm/launch.h"
#include "layers/cuda/conv/tensor_map.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

using namespace cuda;

const QConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<QConv>(spec.layer).attributes();
}

// in_c in pairs of bytes, every tap's channels in whole steps.
ConvShape shape_of(const NodeSpec& spec) {
  const std::int64_t channels = spec.inputs[0]->shape[1];
  ConvShape shape = conv_gemm_shape(spec, attributes_of(spec).conv,
                                    ceil_div(channels, kPipelinedDepth) * kPipelinedDepth / 2);
  shape.int8 = true;
  return shape;
}

Refusal refuse_pipelined(const NodeSpec& spec) {
  if (Refusal reason = refuse_qconv_gemm(spec)) return reason;
  const TensorDesc& x = *spec.inputs[0];
  const Window& w = attributes_of(spec).conv.window;
  if (spec.outputs[0].dtype != DType::i8) return "y must be i8: real results have no room in its registers";
  if (!is_channels_last(x)) return "x must be channels_last";
  if (x.shape[1] % 16 != 0) return "channels must be a multiple of 16";
  for (std::size_t i = 0; i < 2; ++i) {
    // What a tensor map of four dimensions can say.
    const std::int64_t last =
        (spec.outputs[0].shape[static_cast<int>(i) + 2] - 1) * w.stride[i] - w.pad_begin[i];
    const std::int64_t upper = last - (x.shape[static_cast<int>(i) + 2] - 1);
    if (w.stride[i] > 8 || w.pad_begin[i] > 128 || upper < -128 || upper > 127 ||
        (w.kernel[i] - 1) * w.dilation[i] > 255)
      return "the window is too large for a tensor map";
  }
  if (!has_hopper_kernels()) return "only Hopper's GPUs are handled";
  return std::nullopt;
}

// A variant is the columns of a tile, with "+overlap" where the launch overlaps with the previous kernel.
struct Way {
  int columns = 128;
  bool overlap = true;
  std::string name() const { return fmt::format("{}{}", columns, overlap ? "+overlap" : ""); }
};

Estimate way_estimate(const NodeSpec& spec, const Way& way) {
  constexpr int kResident = 2;  // blocks of a multiprocessor
  const ConvShape shape = shape_of(spec);
  const int processors = cuda::processors_of(spec.gpu);
  const std::int64_t column_tiles = ceil_div(shape.out_c, way.columns),
                     tiles = ceil_div(shape.rows(), cuda::kPipelinedRows);
  const std::int64_t workers = std::max<std::int64_t>(1, std::int64_t{kResident} * processors / column_tiles);
  cuda::LaunchTerms terms;
  terms.steps = static_cast<double>(ceil_div(shape.depth() * 2, cuda::kPipelinedDepth));
  terms.rounds = static_cast<double>(ceil_div(tiles, workers));
  terms.blocks = static_cast<double>(tiles * column_tiles) / processors;
  terms.megabytes = cuda::operand_megabytes(spec);
  terms.again = 1e-6 * static_cast<double>(spec.inputs[0]->bytes()) * static_cast<double>(column_tiles - 1);
  terms.waits = way.overlap ? 0 : 1;
  return cuda::estimate_of(fmt::format("pipelined_gemm i8 {}", way.columns), terms);
}

std::vector<Way> ways_of(const NodeSpec& spec) {
  const int fitting = shape_of(spec).out_c > 64 ? 128 : 64;
  return cuda::least_first(std::vector<Way>{{fitting, true}, {fitting, false}, {192 - fitting, true}},
                           [&](const Way& way) { return way_estimate(spec, way); });
}

std::vector<std::string> variant_names(const NodeSpec& spec) {
  return variant_names_of(ways_of(spec));
}

Way way_for(const NodeSpec& spec) {
  return find_variant(ways_of(spec), spec.variant);
}

class PipelinedGemm final : public PackedKernel {
 public:
  explicit PipelinedGemm(const NodeSpec& spec)
      : way_(way_for(spec)),
        shape_(shape_of(spec)),
        channels_(static_cast<int>(spec.inputs[0]->shape[1])),
        operands_(spec, shape_, KeptDepth(shape_), channels_, way_.columns) {
    ConvTile tile{kPipelinedRows, way_.columns, 1};
    args_.conv = conv_gemm_args(shape_, KeptDepth(shape_), tile);
    args_.conv.overlap = way_.overlap;
    operands_.set(args_.conv);
    args_.tap_steps = shape_.in_c * 2 / kPipelinedDepth;
    args_.plain = shape_.kernel_h == 1 && shape_.kernel_w == 1 && shape_.stride_h == 1 &&
                  shape_.stride_w == 1 && shape_.in_h == shape_.out_h && shape_.in_w == shape_.out_w &&
                  shape_.pad_h == 0 && shape_.pad_w == 0;
    const std::int64_t depth = args_.conv.depth * std::int64_t{2};
    args_.adds_tiles =
        spec.has_input(3) && way_.columns == kPipelinedDepth && shape_.out_c % kPipelinedDepth == 0;
    args_.weights = matrix_map(args_.conv.weights, depth,
                               static_cast<std::int64_t>(args_.conv.column_tiles) * way_.columns,
                               kPipelinedDepth, way_.columns);
    int resident = 1;
    PIPIT_CUDA(prepare_pipelined_gemm(way_.columns, args_, resident));
    const std::int64_t row_tiles = ceil_div(shape_.rows(), kPipelinedRows);
    args_.workers =
        static_cast<int>(std::clamp<std::int64_t>(resident / args_.conv.column_tiles, 1, row_tiles));
    map_x(operands_.weights());  // throws what is wrong with the geometry, if anything, before the first run
  }
  std::size_t packed_bytes() const override { return operands_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    PipelinedArgs args = args_;
    args.x = map_x(inputs[0].data);
    args.conv.residual = optional_data<std::int8_t>(inputs, 3);
    if (args.adds_tiles)
      args.residual =
          matrix_map(args.conv.residual, shape_.out_c, shape_.rows(), kPipelinedDepth, kPipelinedRows);
    args.conv.y = outputs[0].data;
    PIPIT_CUDA(launch_pipelined_gemm(way_.columns, args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  CUtensorMap map_x(const void* x) const {
    if (args_.plain) return matrix_map(x, channels_, shape_.rows(), kPipelinedDepth, kPipelinedRows);
    return patch_map(x, shape_, channels_, kPipelinedDepth, kPipelinedRows);
  }

  Way way_;
  ConvShape shape_;
  int channels_;
  QConvGemmOperands operands_;
  PipelinedArgs args_;
};

Estimate estimate(const NodeSpec& spec) {
  return way_estimate(spec, way_for(spec));
}

}  // namespace

void register_cuda_qconv_pipelined(Registry& registry) {
  registry.add(QConv::kType, DeviceKind::cuda,
               conv_candidate<PipelinedGemm>("pipelined_gemm", refuse_pipelined, estimate, fuses_table,
                                             variant_names));
}

}  // namespace pipit::internal
