#include "pipit/sweeping/layer_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <tuple>

#include "engine/base/clock.h"
#include "engine/base/statistics.h"
#include "engine/plan/tuner.h"
#include "engine/platform/thread_pool.h"
#include "layers/ops/qconv.h"
#include "layers/registry.h"
#include "pipit/detail/step_info.h"

namespace pipit::internal::detail {

namespace {

constexpr int kPeerRuns = 3;     // of a plan, before the fastest is chosen
constexpr double kHopeless = 3;  // times the best so far: such a plan is not timed any further
constexpr float kSteps = 127;

float scale_of(double most) {
  return most > 0 ? static_cast<float>(most) / kSteps : 1.0F;
}

// u8 around 128 on the CPU, whose kernels want that, i8 on a GPU.
Quantization quantization(double most, DeviceKind device) {
  return device == DeviceKind::cpu ? Quantization{scale_of(most), 128, DType::u8}
                                   : Quantization{scale_of(most), 0, DType::i8};
}

NewWeights part_of(const NewWeights& weights, const std::vector<std::int64_t>& inputs,
                   const std::vector<std::int64_t>& outputs) {
  const Shape& shape = weights.weights.shape();
  const std::int64_t taps = shape.elements() / (shape[0] * shape[1]);
  NewWeights part;
  part.weights = Tensor(
      TensorDesc{Shape{std::ssize(outputs), std::ssize(inputs), shape[2], shape.rank() > 3 ? shape[3] : 1}});
  auto to = part.weights.values<float>().begin();
  for (const std::int64_t o : outputs) {
    for (const std::int64_t i : inputs)
      to = std::copy_n(weights.weights.values<float>().begin() + (o * shape[1] + i) * taps, taps, to);
    part.bias.push_back(weights.bias[static_cast<std::size_t>(o)]);
  }
  return part;
}

ValueId add_float(GraphBuilder& graph, const ConvAttributes& attributes, ValueId x, NewWeights weights) {
  const Shape bias{std::ssize(weights.bias)};
  return graph.add1("layer", std::make_shared<Conv>(attributes),
                    {x, graph.add_constant("weights", std::move(weights.weights)),
                     graph.add_constant("bias", Tensor::from<float>(bias, weights.bias))});
}

ValueId add_bytes(GraphBuilder& graph, QConvAttributes attributes, ValueId x, const NewWeights& weights) {
  const Shape& shape = weights.weights.shape();
  const std::int64_t filter = shape.elements() / shape[0];
  Tensor integers(TensorDesc{shape, DType::i8});
  std::vector<std::int32_t> bias;
  for (std::int64_t o = 0; o < shape[0]; ++o) {
    const auto from = weights.weights.values<float>().subspan(static_cast<std::size_t>(o * filter),
                                                              static_cast<std::size_t>(filter));
    const auto to = integers.values<std::int8_t>().subspan(static_cast<std::size_t>(o * filter),
                                                           static_cast<std::size_t>(filter));
    float most = 0;
    for (const float w : from) most = std::max(most, std::abs(w));
    const float scale = scale_of(most);
    attributes.weight_scales.push_back(scale);
    std::transform(from.begin(), from.end(), to.begin(),
                   [&](float w) { return static_cast<std::int8_t>(std::lrint(w / scale)); });
    bias.push_back(static_cast<std::int32_t>(std::llrint(double{weights.bias[static_cast<std::size_t>(o)]} /
                                                         (double{attributes.x.scale} * scale))));
  }
  return graph.add1("layer", std::make_shared<QConv>(std::move(attributes)),
                    {x, graph.add_constant("weights", std::move(integers)),
                     graph.add_constant("bias", Tensor::from<std::int32_t>(Shape{shape[0]}, bias))});
}

}  // namespace

Tensor network_values(const Shape& shape, int threads) {
  const std::int64_t channels = std::max<std::int64_t>(1, shape[1] / 2);
  // Every plane from a seed of its own, so that threads may draw them.
  const auto noise = [&](const Shape& of, unsigned seed) {
    Tensor made(TensorDesc{of});
    const auto plane = static_cast<std::size_t>(of[2] * of[3]);
    shared_pool(threads)->parallel_for(of[0] * of[1], [&](std::int64_t i, int /*worker*/) {
      std::mt19937 random(seed + 2 * static_cast<unsigned>(i));
      std::normal_distribution<float> normal(0, 1);
      for (float& value : made.values<float>().subspan(static_cast<std::size_t>(i) * plane, plane))
        value = normal(random);
    });
    return made;
  };
  ConvAttributes attributes;
  attributes.window.rank = 2;
  attributes.window.kernel = {3, 3, 1};
  attributes.window.pad_begin = attributes.window.pad_end = {1, 1, 0};
  attributes.activation = Clamp::relu();
  Tensor weights = noise(Shape{shape[1], channels, 3, 3}, 0);
  for (float& w : weights.values<float>()) w /= std::sqrt(9 * static_cast<float>(channels));
  const Tensor x = noise(Shape{shape[0], channels, shape[2], shape[3]}, 1);
  GraphBuilder graph;
  const ValueId read = graph.add_input("x", x.desc());
  graph.mark_output(graph.add1("layer", std::make_shared<Conv>(attributes),
                               {read, graph.add_constant("weights", std::move(weights))}));
  PlanOptions options;
  options.threads = threads;
  Session session(ExecutionPlan::build(graph.build(), default_registry(), options));
  const ConstTensorView input = x.view();
  return to_layout(session.run({&input, 1})[0], Layout::row_major);
}

LayerInput::LayerInput(Tensor x, int threads) : x_(std::move(x)), threads_(threads) {
  for (const float value : x_.values<float>()) largest_ = std::max(largest_, std::abs(double{value}));
}

std::shared_ptr<const Tensor> LayerInput::as(Precision precision, DeviceKind device, double largest) {
  std::shared_ptr<const Tensor>& made =
      made_[{precision, device, precision == Precision::int8 ? largest : 0.0}];
  if (!made) {
    std::vector<std::int64_t> channels(static_cast<std::size_t>(x_.shape()[1]));
    std::iota(channels.begin(), channels.end(), std::int64_t{0});
    made = std::make_shared<const Tensor>(part(channels, precision, device, largest));
  }
  return made;
}

Tensor LayerInput::part(const std::vector<std::int64_t>& inputs, Precision precision, DeviceKind device,
                        double largest) const {
  const Quantization q = quantization(largest, device);
  const DType type = precision == Precision::int8 ? q.dtype : stored_type(precision);
  const Shape& shape = x_.shape();
  const auto channels = static_cast<std::int64_t>(inputs.size());
  const std::int64_t places = shape[2] * shape[3];
  Tensor made(TensorDesc{Shape{shape[0], channels, shape[2], shape[3]}, type, Layout::channels_last});
  const std::span<const float> values = x_.values<float>();
  const auto fill = [&](auto convert) {
    using T = decltype(convert(0.0F));
    T* all = made.values<T>().data();
    shared_pool(threads_)->parallel_for(shape[0] * shape[2], [&](std::int64_t row, int /*worker*/) {
      T* to = all + row * shape[3] * channels;
      const std::int64_t first = row / shape[2] * shape[1] * places + row % shape[2] * shape[3];
      for (std::int64_t p = first; p < first + shape[3]; ++p) {
        for (const std::int64_t c : inputs) *to++ = convert(values[static_cast<std::size_t>(p + c * places)]);
      }
    });
  };
  const auto step = [&](float v) {
    const QuantizedRange range = quantized_range(q);
    return std::clamp(static_cast<int>(std::lrint(v / q.scale)) + q.zero_point, range.low, range.high);
  };
  if (type == DType::f32) {
    fill([](float v) { return v; });
  } else if (type == DType::f16) {
    fill([](float v) { return to_half(v); });
  } else if (type == DType::bf16) {
    fill([](float v) { return to_bfloat16(v); });
  } else if (type == DType::u8) {
    fill([&](float v) { return static_cast<std::uint8_t>(step(v)); });
  } else {
    fill([&](float v) { return static_cast<std::int8_t>(step(v)); });
  }
  return made;
}

LayerMachine::LayerMachine(DeviceKind where, int count)
    : device(where),
      threads(count),
      pool(shared_pool(count)),
      tuner(std::make_shared<Tuner>(TunerOptions{})) {
  if (device == DeviceKind::cuda) clock = make_cuda_layer_clock(0);
}

LayerRun::LayerRun(const SparseLayer& layer, const NewWeights& weights,
                   const std::vector<std::int64_t>& inputs, const std::vector<std::int64_t>& outputs,
                   LayerInput& x, const LayerMachine& machine, const LayerTarget& target,
                   const LayerRanges& ranges)
    : outputs_(outputs), all_outputs_(layer.weights.weights.shape()[0]) {
  const bool bytes = target.precision == Precision::int8;
  x_ = std::ssize(inputs) == layer.x[1]
           ? x.as(target.precision, machine.device, ranges.x)
           : std::make_shared<const Tensor>(x.part(inputs, target.precision, machine.device, ranges.x));
  NewWeights part = part_of(weights, inputs, outputs);
  const std::int64_t weight_elements = part.weights.shape().elements();
  GraphBuilder graph;
  TensorDesc input = x_->desc();
  if (!bytes) input.dtype = DType::f32;
  const ValueId read = graph.add_input("x", input);
  ValueId written = kNoValue;
  if (bytes) {
    const Quantization y = quantization(ranges.y, machine.device);
    y_scale_ = y.scale;
    written =
        add_bytes(graph, {layer.attributes, quantization(ranges.x, machine.device), {}, y, {}}, read, part);
  } else {
    written = add_float(graph, layer.attributes, read, std::move(part));
  }
  graph.set_layout(written, Layout::channels_last);
  if (stores_16_bits(target.precision)) {
    graph.set_dtype(read, stored_type(target.precision));
    graph.set_dtype(written, stored_type(target.precision));
  }
  graph.mark_output(written);

  PlanOptions options;
  options.device = machine.device;
  options.precision = target.precision;
  options.threads = machine.threads;
  options.micro_batch = 0;
  options.tuner = machine.tuner;
  options.prefer_kernels = {{target.kernel}};
  plan_ = ExecutionPlan::build(graph.build(), default_registry(), options);
  const Step& step = plan_->steps().at(0);
  if (!target.kernel.empty() && step.kernel_name != target.kernel) {
    std::string reason = "no kernel of that name on this device and in this precision";
    for (const RefusedCandidate& refused : step.refused) {
      if (refused.name == target.kernel) reason = refused.reason;
    }
    fail_unsupported("{}: {}", target.kernel, reason);
  }
  const Shape y = layer.output();
  const std::int64_t of_y = y[0] * std::ssize(outputs) * y[2] * y[3];
  bytes_ = static_cast<std::size_t>(x_->desc().bytes()) +
           static_cast<std::size_t>(weight_elements + of_y) * dtype_bytes(x_->desc().dtype);
  if (machine.clock) {
    clocked_ = machine.clock->clocked(plan_, x_);
  } else {
    session_ = std::make_unique<Session>(plan_, machine.pool);
  }
}

float LayerRun::value(const ConstTensorView& y, std::size_t i) const {
  switch (y.desc.dtype) {
    case DType::f16:
      return to_float(y.as<Half>()[i]);
    case DType::bf16:
      return to_float(y.as<BFloat16>()[i]);
    case DType::u8:
      return static_cast<float>(y.as<std::uint8_t>()[i] - 128) * y_scale_;
    case DType::i8:
      return static_cast<float>(y.as<std::int8_t>()[i]) * y_scale_;
    default:
      return y.as<float>()[i];
  }
}

std::vector<float> LayerRun::results_at(std::span<const std::size_t> elements) {
  std::vector<float> values;
  if (!clocked_) {
    const ConstTensorView input = x_->view();
    const ConstTensorView y = session_->run({&input, 1})[0];
    for (const std::size_t i : elements) values.push_back(value(y, i));
    return values;
  }
  const TensorDesc& y = plan_->outputs()[0].desc;
  const std::size_t size = dtype_bytes(y.dtype);
  std::vector<std::byte> bytes(elements.size() * size);
  std::vector<ClockedLayer::Part> parts;  // elements that follow each other are one
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (i == 0 || elements[i] != elements[i - 1] + 1)
      parts.push_back({elements[i] * size, {&bytes[i * size], 0}});
    parts.back().to = {parts.back().to.data(), parts.back().to.size() + size};
  }
  clocked_->read(parts);
  for (std::size_t i = 0; i < elements.size(); ++i) values.push_back(value({y, bytes.data()}, i));
  return values;
}

std::vector<float> LayerRun::results() {
  const auto count = static_cast<std::size_t>(plan_->outputs()[0].desc.elements());
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::vector<float> values = results_at(all);
  if (std::ssize(outputs_) == all_outputs_) return values;
  const std::size_t pixels = count / outputs_.size();
  std::vector<float> spread(pixels * static_cast<std::size_t>(all_outputs_), 0.0F);
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(outputs_[i % outputs_.size()]);
    spread[i / outputs_.size() * static_cast<std::size_t>(all_outputs_) + at] = values[i];
  }
  return spread;
}

double LayerRun::run_ms() {
  if (clocked_) return clocked_->run_ms(OperandPlace::memory);
  const ConstTensorView input = x_->view();
  const Clock::time_point begin = Clock::now();
  session_->run({&input, 1});
  return milliseconds_since(begin);
}

double LayerRun::cached_ms() {
  return clocked_ ? clocked_->run_ms(OperandPlace::cache) : 0;
}

StepFloor LayerRun::floor(const Ceilings& ceilings) const {
  const Step& step = plan_->steps().at(0);
  const StepWork work = step_info(*plan_, step).work;
  StepFloor floor = Floors(*plan_, ceilings).of(step, work);
  if (!clocked_) return floor;
  // Activations come from memory and go there, although they would fit into the cache.
  const MemoryCeiling& memory = ceilings.memory.back();
  floor.bytes_ms = std::max(
      floor.bytes_ms, memory.floor_ms(static_cast<double>(work.read), static_cast<double>(work.written)));
  if (floor.bytes_ms > floor.ms) {
    floor.ms = floor.bytes_ms;
    floor.bound = memory.name;
  }
  return floor;
}

PeerRun::PeerRun(const std::vector<PeerConv>& peers, const std::shared_ptr<const Tensor>& x,
                 const LayerMachine& machine) {
  double best = 0;
  for (const PeerConv& peer : peers) {
    std::unique_ptr<ClockedLayer> clocked = machine.clock->clocked(peer.kernel, x, peer.y);
    if (clocked_ && clocked->estimate_ms() > kHopeless * clocked_->estimate_ms()) continue;
    std::vector<double> times;
    for (int run = 0; run < kPeerRuns; ++run) times.push_back(clocked->run_ms(OperandPlace::memory));
    const double ms = quantile(times, 0.5);
    if (clocked_ && ms >= best) continue;
    best = ms;
    name_ = peer.name;
    clocked_ = std::move(clocked);
  }
}

tools::OutputError output_error(const std::vector<float>& results, const std::vector<float>& dense,
                                std::int64_t outputs) {
  constexpr std::size_t kLargest = 10;
  constexpr std::size_t kMaxPixels = 4096;
  tools::OutputError error;
  double squares = 0;
  double reference = 0;
  for (std::size_t i = 0; i < dense.size(); ++i) {
    const double difference = double{results[i]} - dense[i];
    error.mae += std::abs(difference);
    error.max = std::max(error.max, std::abs(difference));
    squares += difference * difference;
    reference += double{dense[i]} * dense[i];
  }
  error.mae /= static_cast<double>(dense.size());
  error.relative_l2 = reference > 0 ? std::sqrt(squares / reference) : 0;

  const auto width = static_cast<std::size_t>(outputs);
  const std::size_t pixels = dense.size() / width;
  const std::size_t largest = std::min(kLargest, width);
  const std::size_t looked_at = std::min(pixels, kMaxPixels);
  const auto largest_of = [&](const std::vector<float>& values, std::size_t pixel) {
    std::vector<std::size_t> order(width);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(largest);
    std::partial_sort(order.begin(), middle, order.end(), [&](std::size_t a, std::size_t b) {
      const float at_a = values[pixel * width + a];
      const float at_b = values[pixel * width + b];
      return at_a != at_b ? at_a > at_b : a < b;
    });
    std::sort(order.begin(), middle);
    return std::vector<std::size_t>(order.begin(), middle);
  };
  std::size_t same = 0;
  for (std::size_t i = 0; i < looked_at; ++i) {
    const std::size_t pixel = i * pixels / looked_at;
    const std::vector<std::size_t> a = largest_of(results, pixel);
    const std::vector<std::size_t> b = largest_of(dense, pixel);
    std::vector<std::size_t> both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    same += both.size();
  }
  error.top10 = static_cast<double>(same) / static_cast<double>(looked_at * largest);
  return error;
}

}  // namespace pipit::internal::detail
