#include "tests/cuda/conformance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "engine/cuda/runtime.h"
#include "layers/evaluate.h"
#include "layers/registry.h"
#include "tests/cuda/follower_chain.h"
#include "tests/support/run_graph.h"

namespace pipit::internal::test {

std::shared_ptr<const Tensor> shared_random(const Shape& shape, std::mt19937& random, float low, float high) {
  return std::make_shared<const Tensor>(random_tensor(shape, random, low, high));
}

namespace {

constexpr std::size_t kGuard = 1024;  // bytes before and after every operand; keeps 256-byte alignment
constexpr auto kPoison = std::byte{0xFF};

// Device memory between two guard zones. All bits set: NaN for floats, -1 for integers.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : bytes_(bytes), buffer_(bytes + 2 * kGuard) { poison(); }
  std::byte* data() const { return buffer_.data() + kGuard; }
  void poison() const { PIPIT_CUDA(cudaMemset(buffer_.data(), 0xFF, buffer_.bytes())); }
  void upload(const void* host) const {
    if (bytes_ > 0) PIPIT_CUDA(cudaMemcpy(data(), host, bytes_, cudaMemcpyHostToDevice));
  }
  std::vector<std::byte> contents() const {
    std::vector<std::byte> host(bytes_);
    if (bytes_ > 0) PIPIT_CUDA(cudaMemcpy(host.data(), data(), bytes_, cudaMemcpyDeviceToHost));
    return host;
  }
  bool guards_intact() const {
    std::vector<std::byte> zones(2 * kGuard);
    PIPIT_CUDA(cudaMemcpy(zones.data(), buffer_.data(), kGuard, cudaMemcpyDeviceToHost));
    PIPIT_CUDA(cudaMemcpy(zones.data() + kGuard, data() + bytes_, kGuard, cudaMemcpyDeviceToHost));
    return std::all_of(zones.begin(), zones.end(), [](std::byte b) { return b == kPoison; });
  }

 private:
  std::size_t bytes_;
  cuda::DeviceBuffer buffer_;
};

Tensor rounded(const Tensor& tensor, DType narrow) {
  Tensor result = tensor.clone();
  for (float& x : result.values<float>())
    x = narrow == DType::f16 ? to_float(to_half(x)) : to_float(to_bfloat16(x));
  return result;
}

// As `type`; from and to: the C++ types of both.
template <typename From, typename To>
Tensor converted(const Tensor& tensor, DType type, To (*convert)(From)) {
  TensorDesc desc = tensor.desc();
  desc.dtype = type;
  Tensor result(desc);
  const auto from = tensor.values<From>();
  std::transform(from.begin(), from.end(), result.values<To>().begin(), convert);
  return result;
}

Tensor as_stored(const Tensor& tensor, DType narrow) {
  return narrow == DType::f16 ? converted<float, Half>(tensor, narrow, to_half)
                              : converted<float, BFloat16>(tensor, narrow, to_bfloat16);
}

Tensor as_float(const Tensor& tensor) {
  return tensor.desc().dtype == DType::f16 ? converted<Half, float>(tensor, DType::f32, to_float)
                                           : converted<BFloat16, float>(tensor, DType::f32, to_float);
}

const Candidate& find_candidate(const Layer& layer, const std::string& name) {
  for (const Candidate& c : default_registry().candidates(layer.type(), DeviceKind::cuda)) {
    if (c.name == name) return c;
  }
  fail("{} has no GPU candidate '{}'", layer.type(), name);
}

// One candidate on one case: host tensors as the kernel gets them, descs, the spec.
class Run {
 public:
  Run(const Layer& layer, const std::string& name, const GpuCase& test)
      : layer_(layer), test_(test), candidate_(find_candidate(layer, name)) {
    select_gpu(0);
    const bool half = stores_16_bits(test.precision);
    const DType narrow = stored_type(test.precision);
    std::vector<TensorDesc> plain;  // as shape inference knows them
    plain.reserve(test.inputs.size());
    std::vector<const TensorDesc*> plain_pointers;
    for (const GpuOperand& operand : test.inputs) {
      if (!operand.tensor) {
        reference_inputs_.push_back(nullptr);
        host_.push_back(nullptr);
        constants_.push_back(nullptr);
        input_descs_.push_back(nullptr);
        plain_pointers.push_back(nullptr);
        continue;
      }
      std::shared_ptr<const Tensor> value = operand.tensor;
      const bool rounds = half && value->desc().dtype == DType::f32;
      if (rounds && !test.keep_input_f32) value = share(rounded(*value, narrow));
      reference_inputs_.push_back(value);
      const Layout layout = value->shape().rank() >= 3 ? operand.layout : Layout::row_major;
      auto placed = share(to_layout(value->view(), layout));
      if (rounds && !operand.constant && !test.keep_input_f32) placed = share(as_stored(*placed, narrow));
      host_.push_back(placed);
      constants_.push_back(operand.constant ? placed : nullptr);
      input_descs_.push_back(&placed->desc());
      plain.push_back(value->desc());
      plain_pointers.push_back(&plain.back());
    }
    output_descs_ = layer.infer(plain_pointers);
    for (TensorDesc& desc : output_descs_) {
      if (desc.shape.rank() >= 3) desc.layout = test.output_layout;
      if (half && desc.dtype == DType::f32 && !test.keep_output_f32) desc.dtype = narrow;
    }
    followers_.emplace(test.followers, output_descs_[0], test.precision);
  }

  // Multiply-accumulates of a convolution.
  double products() const {
    if (layer_.type() != "Conv") return 0;
    const Shape& weights = reference_inputs_[1]->shape();
    return static_cast<double>(output_descs_[0].shape.elements()) * static_cast<double>(weights.elements()) /
           static_cast<double>(weights[0]);
  }
  // Why the candidate does not run the layer, or not with the followers.
  std::optional<std::string> refusal() const {
    if (auto reason = candidate_.refuse(described(0))) return reason;
    if (!followers_->taken_by(candidate_, [this](std::size_t behind) { return described(behind); }))
      return "a follower is not fused";
    return std::nullopt;
  }
  std::vector<std::string> variants() const { return candidate_.variants(spec()); }

  void check() {
    std::vector<Tensor> expected =
        evaluate(test_.reference != nullptr ? *test_.reference : layer_, reference_inputs_);
    for (const Layer* follower : test_.followers)
      expected = evaluate(*follower, std::vector{std::make_shared<const Tensor>(expected[0].clone())});
    kernel_ = candidate_.create(spec());
    std::vector<std::vector<Tensor>> results;
    for (int r = 0; r < 3; ++r) {
      results.push_back(run(-1, r == 2));
      if (::testing::Test::HasFailure()) return;
    }
    for (std::size_t o = 0; o < expected.size(); ++o) {
      compare(results[0][o], expected[o], o);
      for (std::size_t r = 1; r < results.size(); ++r) {
        EXPECT_EQ(
            std::memcmp(results[r][o].view().data, results[0][o].view().data, results[0][o].desc().bytes()),
            0)
            << "output " << o << ": run " << r << " gave other bits\n"
            << description();
      }
    }
    for (std::size_t i = 0; i < host_.size(); ++i) {
      if (::testing::Test::HasFailure()) return;
      if (!layer_.may_run_in_place(static_cast<int>(i)) || !host_[i] || constants_[i] ||
          !(host_[i]->desc() == written()[0])) {
        continue;
      }
      compare(run(static_cast<int>(i), false)[0], expected[0], 0);
      if (::testing::Test::HasFailure()) ADD_FAILURE() << "that was in place over input " << i;
    }
  }

  double microseconds(int launches) {
    kernel_ = candidate_.create(spec());
    const Memory memory(*this, -1);
    const cuda::Stream stream;
    launch(memory, stream);  // a first call outside the capture, as the session makes it
    stream.synchronize();
    const cuda::Graph graph(stream, [&] {
      for (int i = 0; i < launches; ++i) launch(memory, stream);
    });
    graph.launch(stream);
    double best = HUGE_VAL;
    for (int r = 0; r < 5; ++r) {
      const cuda::Event begin, end;
      begin.record(stream);
      graph.launch(stream);
      end.record(stream);
      stream.synchronize();
      best = std::min(best, end.since(begin));
    }
    return best * 1000 / launches;
  }

 private:
  // The operands of one run on the device.
  struct Memory {
    std::vector<std::unique_ptr<Guarded>> owned;
    std::vector<ConstTensorView> inputs;
    std::vector<TensorView> outputs;
    Guarded scratch;
    cuda::DeviceBuffer state;

    Memory(const Run& run, int in_place)
        : scratch(run.kernel_->scratch_bytes()), state(cuda::zeroed_buffer(run.kernel_->state_bytes())) {
      for (std::size_t i = 0; i < run.host_.size(); ++i) {
        const auto& host = run.host_[i];
        if (!host || (run.constants_[i] && !run.kernel_->reads_constant(i))) {
          inputs.push_back({host ? host->desc() : TensorDesc{}, nullptr});
          continue;
        }
        owned.push_back(std::make_unique<Guarded>(host->desc().bytes()));
        owned.back()->upload(host->view().data);
        inputs.push_back({host->desc(), owned.back()->data()});
      }
      for (std::size_t o = 0; o < run.written().size(); ++o) {
        const TensorDesc& desc = run.written()[o];
        if (o == 0 && in_place >= 0) {
          outputs.push_back({desc, const_cast<std::byte*>(inputs[static_cast<std::size_t>(in_place)].data)});
          continue;
        }
        owned.push_back(std::make_unique<Guarded>(desc.bytes()));
        outputs.push_back({desc, owned.back()->data()});
      }
    }
  };

  static std::shared_ptr<const Tensor> share(Tensor tensor) {
    return std::make_shared<const Tensor>(std::move(tensor));
  }

  NodeSpec spec() const { return described(test_.followers.size()); }

  // With that many of the followers.
  NodeSpec described(std::size_t followers) const {
    NodeSpec result{layer_, input_descs_, output_descs_, constants_, test_.precision, 1, 0, test_.variant};
    result.fusion.followers = followers_->specs().first(followers);
    return result;
  }

  // What the kernel writes.
  const std::vector<TensorDesc>& written() const {
    return test_.followers.empty() ? output_descs_ : followers_->outputs();
  }

  void launch(const Memory& memory, const cuda::Stream& stream) {
    kernel_->run(
        memory.inputs, memory.outputs,
        RunContext{pool_, memory.scratch.data(), static_cast<cudaStream_t>(stream), memory.state.data()});
  }

  // Row-major outputs, 16 bits widened to float. in_place: the input whose memory output 0 takes, or -1.
  std::vector<Tensor> run(int in_place, bool captured) {
    const Memory memory(*this, in_place);
    const cuda::Stream stream;
    PIPIT_CUDA(cudaDeviceSynchronize());  // the uploads and poisoning went through the default stream
    if (captured) {
      const cuda::Graph graph(stream, [&] { launch(memory, stream); });
      graph.launch(stream);
      stream.synchronize();
    } else {
      launch(memory, stream);
      stream.synchronize();
    }
    EXPECT_TRUE(memory.scratch.guards_intact()) << "wrote outside its scratch\n" << description();
    for (const auto& m : memory.owned) {
      EXPECT_TRUE(m->guards_intact()) << "wrote outside an operand\n" << description();
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < memory.inputs.size(); ++i) {
      if (!memory.inputs[i].present()) continue;
      const Guarded& m = *memory.owned[next++];
      if (static_cast<int>(i) == in_place) continue;
      EXPECT_EQ(std::memcmp(m.contents().data(), host_[i]->view().data, host_[i]->desc().bytes()), 0)
          << "changed input " << i << "\n"
          << description();
    }
    std::vector<Tensor> results;
    for (const TensorView& output : memory.outputs) {
      Tensor host(output.desc);
      if (output.desc.bytes() > 0) {
        PIPIT_CUDA(cudaMemcpy(host.view().data, output.data, output.desc.bytes(), cudaMemcpyDeviceToHost));
      }
      if (is_stored_float(output.desc.dtype)) host = as_float(host);
      results.push_back(to_layout(host.view(), Layout::row_major));
    }
    return results;
  }

  void compare(const Tensor& got, const Tensor& expected, std::size_t output) const {
    ASSERT_EQ(got.desc().str(), expected.desc().str()) << description();
    if (test_.exact && got.desc().dtype == DType::f32) {
      const DType type = written()[output].dtype;
      return compare_bits(got, is_stored_float(type) ? rounded(expected, type) : expected.clone(), output);
    }
    if (got.desc().dtype == DType::f32) return compare_floats<float>(got, expected, output);
    if (got.desc().dtype == DType::f64) return compare_floats<double>(got, expected, output);
    compare_bits(got, expected, output);
  }

  void compare_bits(const Tensor& got, const Tensor& expected, std::size_t output) const {
    const std::byte* a = got.view().data;
    const std::byte* b = expected.view().data;
    const std::size_t bytes = got.desc().bytes();
    const std::size_t element = dtype_bytes(got.desc().dtype);
    std::size_t different = 0, first = 0;
    for (std::size_t i = 0; i < bytes; i += element) {
      if (std::memcmp(a + i, b + i, element) != 0 && different++ == 0) first = i / element;
    }
    if (different == 0) return;
    const auto hex = [&](const std::byte* from) {
      std::string text;
      for (std::size_t i = 0; i < element; ++i)
        text.insert(0, fmt::format("{:02x}", static_cast<unsigned>(from[first * element + i])));
      return text;
    };
    ADD_FAILURE()
        << fmt::format(
               "output {}: {} of {} elements differ from the reference; element {}: got {}, expected {}\n",
               output, different, bytes / element, first, hex(a), hex(b))
        << description();
  }

  template <typename T>
  void compare_floats(const Tensor& got, const Tensor& expected, std::size_t output) const {
    double difference = 0, norm = 0, worst = -1;
    std::size_t where = 0;
    for (std::size_t i = 0; i < got.values<T>().size(); ++i) {
      const auto a = static_cast<double>(got.values<T>()[i]);
      const auto b = static_cast<double>(expected.values<T>()[i]);
      if (a == b || (std::isnan(a) && std::isnan(b))) {
        if (std::isfinite(b)) norm += b * b;
        continue;
      }
      const double error = std::isfinite(a) && std::isfinite(b) ? std::abs(a - b) : HUGE_VAL;
      if (error > worst) {
        worst = error;
        where = i;
      }
      difference += error * error;
      norm += b * b;
    }
    const double fallback = stores_16_bits(test_.precision) ? 2e-3 : 1e-5;
    const double coarser = test_.precision == Precision::bf16 ? 8 : 1;
    // Halves below 2^-14 lie 2^-24 apart, whatever their size.
    const double step = test_.precision == Precision::fp16 ? 0x1p-24 : 0;
    const double allowed = coarser * (test_.tolerance > 0 ? test_.tolerance : fallback) * std::sqrt(norm) +
                           step * std::sqrt(static_cast<double>(got.values<T>().size()));
    if (std::sqrt(difference) <= allowed) return;
    ADD_FAILURE()
        << fmt::format(
               "output {}: off by {:.3g} in norm, allowed {:.3g}; worst element {}: got {}, expected {}\n",
               output, std::sqrt(difference), allowed, where, static_cast<double>(got.values<T>()[where]),
               static_cast<double>(expected.values<T>()[where]))
        << description();
  }

  std::string description() const {
    std::string text =
        fmt::format("{} [{}], GPU kernel {} {}, {}, seed {}\n", layer_.type(), layer_.summary(),
                    candidate_.name, test_.variant, precision_name(test_.precision), gpu_seed());
    for (std::size_t i = 0; i < host_.size(); ++i) {
      text +=
          fmt::format("  input {}: {}\n", i,
                      host_[i] ? describe(host_[i]->desc()) + (constants_[i] ? " constant" : "") : "absent");
    }
    for (const TensorDesc& desc : output_descs_) text += fmt::format("  output: {}\n", describe(desc));
    for (const Layer* follower : test_.followers)
      text += fmt::format("  then {} [{}]\n", follower->type(), follower->summary());
    return text;
  }
  static std::string describe(const TensorDesc& desc) {
    return fmt::format("{} {}", desc.str(), layout_name(desc.layout));
  }

  const Layer& layer_;
  const GpuCase& test_;
  const Candidate& candidate_;
  ThreadPool pool_{1};
  std::unique_ptr<Kernel> kernel_;
  std::vector<std::shared_ptr<const Tensor>> reference_inputs_;
  std::vector<std::shared_ptr<const Tensor>> host_;
  std::vector<std::shared_ptr<const Tensor>> constants_;
  std::vector<const TensorDesc*> input_descs_;
  std::vector<TensorDesc> output_descs_;
  std::optional<FollowerChain> followers_;
};

}  // namespace

void expect_gpu(const Layer& layer, const std::string& candidate, const GpuCase& test) {
  Run run(layer, candidate, test);
  if (const auto reason = run.refusal()) {
    ADD_FAILURE() << layer.type() << " [" << layer.summary() << "]: GPU kernel " << candidate
                  << " refuses: " << *reason;
    return;
  }
  run.check();
  if (test.precision != Precision::fp16 || ::testing::Test::HasFailure()) return;
  if (layer.type() == "QConv" && candidate == "stem") return;  // has no registers for it
  // No precision stores bf16 beside these.
  for (const std::string_view halves : {"WLinear", "WConv", "DynamicQuantize", "DynamicQConv"}) {
    if (layer.type() == halves) return;
  }
  if (run.products() > 5e8) return;  // the reference would take many seconds
  GpuCase bfloat = test;
  bfloat.precision = Precision::bf16;
  expect_gpu(layer, candidate, bfloat);
}

std::optional<std::string> gpu_refusal(const Layer& layer, const std::string& candidate,
                                       const GpuCase& test) {
  return Run(layer, candidate, test).refusal();
}

std::vector<std::string> gpu_variants(const Layer& layer, const std::string& candidate, const GpuCase& test) {
  return Run(layer, candidate, test).variants();
}

double gpu_microseconds(const Layer& layer, const std::string& candidate, const GpuCase& test, int launches) {
  return Run(layer, candidate, test).microseconds(launches);
}

}  // namespace pipit::internal::test
