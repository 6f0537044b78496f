#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <set>

#include "engine/base/ceil_div.h"
#include "engine/graph/half.h"
#include "engine/plan/candidate_order.h"
#include "layers/gpu_peers.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"
#include "layers/registry.h"
#include "tests/cuda/sweep/engines.h"

namespace pipit::sweep {

namespace {

const std::set<std::string> kLibraries{"cudnn", "im2col_gemm"};
constexpr std::size_t kPlans = 4;        // of cuDNN's INT8, from which the fastest is taken
constexpr std::size_t kBlockBytes = 16;  // of channels: what kernels keep or leave out as one

// A layer with what a candidate is told of its node.
struct Node {
  std::unique_ptr<Layer> layer;
  Precision precision;
  TensorDesc x, y;
  std::shared_ptr<const Tensor> weights, bias;

  template <typename Use>
  auto with_spec(std::string_view variant, Use use) const {
    const std::vector<const TensorDesc*> inputs{&x, &weights->desc(), &bias->desc()};
    const std::vector<TensorDesc> outputs{y};
    const std::vector<std::shared_ptr<const Tensor>> constants{nullptr, weights, bias};
    return use(NodeSpec{*layer, inputs, outputs, constants, precision, 1, 0, variant});
  }
};

template <typename T, typename Next>
std::shared_ptr<const Tensor> filled(const Shape& shape, Next next) {
  Tensor tensor(TensorDesc{shape, DTypeOf<T>::value});
  for (T& value : tensor.values<T>()) value = static_cast<T>(next());
  return std::make_shared<const Tensor>(std::move(tensor));
}

// Weights of which every panel of outputs keeps a share of the blocks, drawn at random.
template <typename T, typename Next>
std::shared_ptr<const Tensor> pruned(const Configuration& c, std::int64_t block, Next next) {
  Tensor tensor(TensorDesc{c.weights(), DTypeOf<T>::value});
  const std::int64_t taps = c.kernel * c.kernel;
  const std::int64_t per_tap = ceil_div(c.in_c, block);
  const std::int64_t panel = c.panel > 0 ? c.panel : c.out_c;
  std::vector<bool> kept(static_cast<std::size_t>(taps * per_tap));
  std::fill_n(kept.begin(), std::lround(c.keep * static_cast<double>(kept.size())), true);
  std::mt19937 random(2);
  std::size_t i = 0;
  for (std::int64_t o = 0; o < c.out_c; ++o) {
    if (o % panel == 0) std::shuffle(kept.begin(), kept.end(), random);
    for (std::int64_t channel = 0; channel < c.in_c; ++channel) {
      for (std::int64_t tap = 0; tap < taps; ++tap, ++i) {
        const T value = static_cast<T>(next());
        tensor.values<T>()[i] =
            kept[static_cast<std::size_t>(tap * per_tap + channel / block)] ? value : T{0};
      }
    }
  }
  return std::make_shared<const Tensor>(std::move(tensor));
}

Node half_node(const Configuration& c) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto next = [&] { return uniform(random); };
  Node node;
  node.layer = std::make_unique<Conv>(ConvAttributes{c.window(), 1, {}});
  node.precision = Precision::fp16;
  node.x = TensorDesc{c.x(), DType::f16, Layout::channels_last};
  node.y = TensorDesc{c.y(), DType::f16, Layout::channels_last};
  node.weights = pruned<float>(c, kBlockBytes / sizeof(Half), next);
  node.bias = filled<float>(Shape{c.out_c}, next);
  return node;
}

Node int8_node(const Configuration& c, DType stored) {
  std::mt19937 random(1);
  const auto next = [&] { return static_cast<int>(random() % 255) - 127; };
  QConvAttributes a;
  a.conv.window = c.window();
  a.x = Quantization{0.05F, 0, DType::i8};
  // Some outputs saturate and most do not.
  const double deviation =
      73.0 * 73.0 * 0.05 * 0.01 * std::sqrt(static_cast<double>(c.in_c * c.kernel * c.kernel));
  if (stored == DType::i8) a.y = Quantization{static_cast<float>(deviation / 64), 0, DType::i8};
  a.weight_scales = {0.01F};
  Node node;
  node.layer = std::make_unique<QConv>(a);
  node.precision = stored == DType::f16 ? Precision::fp16 : Precision::fp32;
  node.x = TensorDesc{c.x(), DType::i8, Layout::channels_last};
  node.y = TensorDesc{c.y(), stored, Layout::channels_last};
  node.weights = pruned<std::int8_t>(c, kBlockBytes, next);
  node.bias = filled<std::int32_t>(Shape{c.out_c}, next);
  return node;
}

Times time_kernel(const Node& node, const Kernel& kernel, Timer& timer) {
  static ThreadPool pool(1);
  const cuda::DeviceBuffer state = cuda::zeroed_buffer(kernel.state_bytes());
  const RunContext context{pool, timer.scratch(kernel.scratch_bytes()), nullptr, state.data()};
  return timer.measure(node.x.dtype, node.x.bytes(), node.y.bytes(),
                       [&](const std::byte* x, std::byte* y, cudaStream_t stream) {
                         RunContext on_stream = context;
                         on_stream.stream = stream;
                         const ConstTensorView inputs[] = {
                             {node.x, x}, {node.weights->desc(), nullptr}, {node.bias->desc(), nullptr}};
                         const TensorView outputs[] = {{node.y, y}};
                         kernel.run(inputs, outputs, on_stream);
                       });
}

void measure_node(const std::string& engine, const Node& node, Timer& timer, bool every,
                  const std::string& named, std::vector<Measured>& results) {
  bool chosen = false;
  for (const OrderedCandidate& place : node.with_spec("", [&](const NodeSpec& spec) {
         return candidate_order(default_registry(), DeviceKind::cuda, spec);
       })) {
    const Candidate* candidate = place.candidate;
    if (kLibraries.count(candidate->name) != 0 || candidate->name == kReference) continue;
    if (node.with_spec("", candidate->refuse)) continue;
    const bool all = every || candidate->name == named;
    if (chosen && !all) continue;
    std::vector<std::string> variants{""};
    if (all && candidate->variants) {
      for (const std::string& name : node.with_spec("", candidate->variants)) variants.push_back(name);
    }
    for (const std::string& variant : variants) {
      if (variant.empty() && chosen) continue;
      const std::unique_ptr<Kernel> kernel = node.with_spec(variant, candidate->create);
      const std::string name = candidate->name + (variant.empty() ? "" : " " + variant);
      results.push_back({variant.empty() ? engine : fmt::format("{}: {}", engine, name), name,
                         time_kernel(node, *kernel, timer)});
    }
    chosen = true;
  }
  if (!chosen) fail("no kernel of pipit's runs {}", node.layer->summary());
}

Measured measure_cudnn_int8(const Configuration& c, Timer& timer) {
  const Node node = int8_node(c, DType::i8);
  Measured best{"cudnn int8", "this build has none", {}};
  for (const Candidate& candidate : default_registry().candidates(QConv::kType, DeviceKind::cuda)) {
    if (candidate.name != "cudnn") continue;
    if (const Refusal reason = node.with_spec("", candidate.refuse)) {
      best.kernel = *reason;
      continue;
    }
    const std::vector<std::string> variants = node.with_spec("", candidate.variants);
    for (std::size_t i = 0; i < std::min(variants.size(), kPlans); ++i) {
      const std::unique_ptr<Kernel> kernel = node.with_spec(variants[i], candidate.create);
      const Times times = time_kernel(node, *kernel, timer);
      if (!best.ran() || times.memory < best.times.memory) best = {best.engine, variants[i], times};
    }
  }
  return best;
}

Measured measure_cudnn_half(const Configuration& c, Layout layout, const std::string& engine, Timer& timer) {
  Node node = half_node(c);
  const std::span<const float> bias = node.bias->values<float>();
  const ConvProblem problem{{c.window(), 1, {}}, c.x(), node.weights, {bias.begin(), bias.end()}};
  Measured best{engine, "", {}};
  try {
    for (const PeerConv& peer : cudnn_convolutions(problem, PeerCall::best, layout, 0)) {
      node.x = peer.x;
      node.y = peer.y;
      const Times times = time_kernel(node, *peer.kernel, timer);
      if (!best.ran() || times.memory < best.times.memory) best = {engine, peer.name, times};
    }
  } catch (const UnsupportedError& e) {
    best.kernel = e.what();
  }
  return best;
}

}  // namespace

std::vector<Measured> measure_cudnn(const Configuration& c, Timer& timer) {
  return {measure_cudnn_int8(c, timer),
          measure_cudnn_half(c, Layout::channels_last, "cudnn fp16 nhwc", timer),
          measure_cudnn_half(c, Layout::row_major, "cudnn fp16 nchw", timer)};
}

std::vector<Measured> measure_pipit(const Configuration& c, Timer& timer, bool every,
                                    const std::string& named) {
  std::vector<Measured> results;
  measure_node("int8", int8_node(c, DType::i8), timer, every, named, results);
  measure_node("int8 to f16", int8_node(c, DType::f16), timer, false, "", results);
  measure_node("fp16", half_node(c), timer, every, named, results);
  return results;
}

}  // namespace pipit::sweep
