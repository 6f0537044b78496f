#include "tests/layers/conformance.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "layers/common/dispatch.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/evaluate.h"
#include "layers/reference/reference.h"
#include "layers/registry.h"
#include "tests/support/allocation_counter.h"

namespace pipit::internal::test {

std::shared_ptr<const Tensor> absolute_values(const Tensor& tensor) {
  Tensor result = tensor.clone();
  for (float& value : result.values<float>()) value = std::abs(value);
  return std::make_shared<const Tensor>(std::move(result));
}

std::vector<double> doubles(const Tensor& tensor) {
  const std::span<const float> values = tensor.values<float>();
  return {values.begin(), values.end()};
}

std::vector<Tensor> run_reference(const Layer& layer, const std::vector<Operand>& inputs) {
  std::vector<std::shared_ptr<const Tensor>> tensors;
  for (const Operand& input : inputs) tensors.push_back(input.tensor);
  return evaluate(layer, tensors);
}

namespace {

constexpr std::size_t kGuard = 256;  // bytes before and after every operand
constexpr auto kPoison = std::byte{0xFF};

// Memory with guard zones. All bits set: NaN for floats, -1 for integers.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : bytes_(bytes), buffer_(bytes + 2 * kGuard) { poison(); }
  std::byte* data() const { return buffer_.data() + kGuard; }
  std::size_t bytes() const { return bytes_; }
  void poison() { std::fill_n(buffer_.data(), buffer_.bytes(), kPoison); }
  bool guards_intact() const {
    const auto intact = [](const std::byte* p) {
      return std::all_of(p, p + kGuard, [](std::byte b) { return b == kPoison; });
    };
    return intact(buffer_.data()) && intact(data() + bytes_);
  }

 private:
  std::size_t bytes_;
  HostBuffer buffer_;
};

Guarded guarded_copy(const ConstTensorView& view) {
  Guarded result(view.desc.bytes());
  std::memcpy(result.data(), view.data, view.desc.bytes());
  return result;
}

// f32 elements as `stored`, f16 or bf16.
Tensor narrowed(const Tensor& tensor, DType stored) {
  Tensor result(TensorDesc{tensor.shape(), stored, tensor.desc().layout});
  with_stored_float(stored, [&]<typename T>(std::type_identity<T>) {
    std::ranges::transform(tensor.values<float>(), result.values<T>().begin(), to_stored<T>);
  });
  return result;
}

Tensor widened(const Tensor& tensor) {
  Tensor result(TensorDesc{tensor.shape(), DType::f32, tensor.desc().layout});
  with_stored_float(tensor.desc().dtype, [&]<typename T>(std::type_identity<T>) {
    std::ranges::transform(tensor.values<T>(), result.values<float>().begin(),
                           [](T value) { return to_float(value); });
  });
  return result;
}

// The same case with operands that `stored` holds exactly.
Conformance rounded_to(const Conformance& conformance, DType stored) {
  Conformance result = conformance;
  for (Operand& operand : result.inputs) {
    if (!operand.tensor || operand.constant || operand.tensor->desc().dtype != DType::f32) continue;
    operand.tensor = std::make_shared<const Tensor>(widened(narrowed(*operand.tensor, stored)));
  }
  return result;
}

// Whether f16 can hold the elements.
bool fit_half(const std::vector<Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) {
    if (tensor.desc().dtype != DType::f32) return true;
    const auto values = tensor.values<float>();
    return std::all_of(values.begin(), values.end(), [](float v) { return std::abs(v) < 65000.0F; });
  });
}

// One candidate on one combination of layouts.
class Run {
 public:
  Run(const Layer& layer, const Conformance& conformance, const Candidate& candidate,
      const std::vector<Layout>& input_layouts, Layout output_layout, Precision precision)
      : layer_(layer), conformance_(conformance), candidate_(candidate), precision_(precision) {
    std::vector<const TensorDesc*> f32_descs;
    for (std::size_t i = 0; i < conformance.inputs.size(); ++i) {
      const Operand& operand = conformance.inputs[i];
      std::shared_ptr<const Tensor> tensor;
      if (operand.tensor) {
        tensor = std::make_shared<const Tensor>(to_layout(operand.tensor->view(), input_layouts[i]));
      }
      f32_descs.push_back(operand.tensor ? &operand.tensor->desc() : nullptr);
      if (tensor && !operand.constant && stored_narrow(tensor->desc())) {
        tensor = std::make_shared<const Tensor>(narrowed(*tensor, stored_type(precision)));
      }
      inputs_.push_back(tensor);
      constants_.push_back(operand.constant ? tensor : nullptr);
      input_descs_.push_back(tensor ? &tensor->desc() : nullptr);
    }
    output_descs_ = layer.infer(f32_descs);
    for (TensorDesc& desc : output_descs_) {
      desc.layout = desc.shape.rank() >= 3 ? output_layout : Layout::row_major;
      if (stored_narrow(desc)) desc.dtype = stored_type(precision);
    }
  }

  bool accepted() const { return !candidate_.refuse(spec(1)); }

  void check(const std::vector<Tensor>& expected) {
    std::vector<std::vector<Tensor>> results;
    for (const int threads : {1, 2, 3}) {
      results.push_back(run(threads, -1));
      if (::testing::Test::HasFailure()) return;
    }
    for (std::size_t o = 0; o < expected.size(); ++o) {
      compare(results[0][o], expected[o], o);
      for (std::size_t t = 1; t < results.size(); ++t) {
        EXPECT_EQ(
            std::memcmp(results[t][o].view().data, results[0][o].view().data, results[0][o].desc().bytes()),
            0)
            << "output " << o << " depends on the thread count\n"
            << description(static_cast<int>(t) + 1);
      }
    }
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (::testing::Test::HasFailure()) return;
      if (!layer_.may_run_in_place(static_cast<int>(i)) || !inputs_[i] || constants_[i] ||
          !(inputs_[i]->desc() == output_descs_[0])) {
        continue;
      }
      compare(run(2, static_cast<int>(i))[0], expected[0], 0);
    }
  }

  std::string description(int threads) const {
    std::string text =
        fmt::format("{} [{}], kernel {} in {}, {} threads, seed {}\n", layer_.type(), layer_.summary(),
                    candidate_.name, precision_name(precision_), threads, test_seed());
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      text += fmt::format(
          "  input {}: {}\n", i,
          inputs_[i] ? describe(inputs_[i]->desc()) + (constants_[i] ? " constant" : "") : "absent");
    }
    for (const TensorDesc& desc : output_descs_) text += fmt::format("  output: {}\n", describe(desc));
    return text;
  }

 private:
  static std::string describe(const TensorDesc& desc) {
    return fmt::format("{} {}", desc.str(), layout_name(desc.layout));
  }

  NodeSpec spec(int threads) const {
    return {layer_, input_descs_, output_descs_, constants_, precision_, threads};
  }

  // Row-major outputs of one run. in_place: the input whose memory output 0 takes, or -1.
  std::vector<Tensor> run(int threads, int in_place) {
    const std::unique_ptr<Kernel> kernel = candidate_.create(spec(threads));
    ThreadPool pool(threads);
    std::vector<Guarded> memory;
    std::vector<ConstTensorView> inputs;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i] || (constants_[i] && !kernel->reads_constant(i))) {
        inputs.push_back({inputs_[i] ? inputs_[i]->desc() : TensorDesc{}, nullptr});
        continue;
      }
      memory.push_back(guarded_copy(inputs_[i]->view()));
      inputs.push_back({inputs_[i]->desc(), memory.back().data()});
    }
    std::vector<TensorView> outputs;
    for (std::size_t o = 0; o < output_descs_.size(); ++o) {
      if (o == 0 && in_place >= 0) {
        outputs.push_back(
            {output_descs_[0], const_cast<std::byte*>(inputs[static_cast<std::size_t>(in_place)].data)});
      } else {
        memory.emplace_back(output_descs_[o].bytes());
        outputs.push_back({output_descs_[o], memory.back().data()});
      }
    }
    const Guarded scratch(kernel->scratch_bytes());
    const HostBuffer state = zeroed_host_buffer(kernel->state_bytes());

    const auto made = [&] {
      const AllocationCounter allocations;
      kernel->run(inputs, outputs, RunContext{pool, scratch.data(), nullptr, state.data()});
      return allocations.count();
    }();

    const std::string where = description(threads) + (in_place >= 0 ? "  in place\n" : "");
    EXPECT_TRUE(made == 0 || candidate_.name.starts_with(kReference))
        << "run() made " << made << " allocations\n"
        << where;
    EXPECT_TRUE(scratch.guards_intact()) << "wrote outside its scratch\n" << where;
    for (const Guarded& m : memory) EXPECT_TRUE(m.guards_intact()) << "wrote outside an operand\n" << where;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].present() || static_cast<int>(i) == in_place) continue;
      EXPECT_EQ(std::memcmp(inputs[i].data, inputs_[i]->view().data, inputs_[i]->desc().bytes()), 0)
          << "changed input " << i << "\n"
          << where;
    }
    std::vector<Tensor> results;
    for (const TensorView& output : outputs) {
      Tensor result = to_layout(output, Layout::row_major);
      results.push_back(is_stored_float(result.desc().dtype) ? widened(result) : std::move(result));
    }
    return results;
  }

  double tolerance(std::size_t output, std::size_t index, double reference) const {
    const Conformance& c = conformance_;
    double allowed = c.absolute + c.relative * std::abs(reference);
    if (output == 0 && !c.magnitude.empty()) allowed += c.scale * c.magnitude.at(index);
    if (stores_16_bits(precision_)) {
      // Constants (weights) rounded to 16 bits, where the kernel keeps them so, then the result: half a unit in the
      // last place of 11 bits (f16) or 8 (bf16), or of the subnormals.
      // Where stretches are summed up in halves: kHalfStretch additions and one of both sums, each off by that as well.
      if (output == 0 && !c.magnitude.empty())
        allowed += (sums_in_halves() ? kHalfStretch + 3 : 1) * half_unit() * c.magnitude.at(index);
      const double subnormal = precision_ == Precision::fp16 ? 0x1p-25 : 0x1p-126;  // the latter become 0
      allowed += half_unit() * (std::abs(reference) + allowed) + subnormal;
    }
    return allowed;
  }

  void compare(const Tensor& got, const Tensor& expected, std::size_t output) const {
    ASSERT_EQ(got.desc(), expected.desc()) << description(1);
    if (got.desc().dtype == DType::f32) return compare_floats<float>(got, expected, output);
    if (got.desc().dtype == DType::f64) return compare_floats<double>(got, expected, output);
    EXPECT_EQ(std::memcmp(got.view().data, expected.view().data, got.desc().bytes()), 0)
        << "output " << output << " differs from the reference\n"
        << description(1);
  }

  template <typename T>
  void compare_floats(const Tensor& got, const Tensor& expected, std::size_t output) const {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < got.values<T>().size(); ++i) {
      const auto a = static_cast<double>(got.values<T>()[i]);
      const auto b = static_cast<double>(expected.values<T>()[i]);
      norm += b * b;
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      difference += (a - b) * (a - b);
      const double allowed = tolerance(output, i, b);
      if (std::abs(a - b) <= allowed) continue;
      ADD_FAILURE() << fmt::format(
                           "output {} element {}: got {}, expected {}, off by {:.3g}, allowed {:.3g}\n",
                           output, i, a, b, std::abs(a - b), allowed)
                    << description(1);
      return;
    }
    if (output == 0 && conformance_.norm_relative > 0) {
      // Constants and result; sums in halves, of terms of random signs (tile_kernel.h).
      double rounding = stores_16_bits(precision_) ? 2 * half_unit() : 0;
      if (sums_in_halves()) rounding += 1.5 * std::sqrt(kHalfStretch / 6.0) * 0x1p-11;
      EXPECT_LE(std::sqrt(difference), (conformance_.norm_relative + rounding) * std::sqrt(norm))
          << description(1);
    }
  }

  bool sums_in_halves() const {
    return precision_ == Precision::fp16 && f16_tiles() != nullptr && candidate_.name == "tile";
  }
  double half_unit() const { return precision_ == Precision::fp16 ? 0x1p-11 : 0x1p-8; }
  bool stored_narrow(const TensorDesc& desc) const {
    return stores_16_bits(precision_) && desc.dtype == DType::f32;
  }

  const Layer& layer_;
  const Conformance& conformance_;
  const Candidate& candidate_;
  Precision precision_;
  std::vector<std::shared_ptr<const Tensor>> inputs_;
  std::vector<std::shared_ptr<const Tensor>> constants_;
  std::vector<const TensorDesc*> input_descs_;
  std::vector<TensorDesc> output_descs_;
};

}  // namespace

namespace {

// Kernels that read and write 16 bits themselves, each after its layer's type.
const std::set<std::string> kStoredKernels = {
    "BatchNorm folded",    "Binary vector",      "ChannelShuffle rows",     "Concat rows",
    "Concat strided_copy", "Conv depthwise",     "Conv small_groups",       "Conv tile",
    "Conv winograd_f2x2",  "Conv winograd_f4x4", "DepthToSpace table_copy", "Expand table_copy",
    "Gather table_copy",   "Gemm tile",          "LayerNorm contiguous",    "MatMul tile",
    "Pad table_copy",      "Pool nhwc",          "Resize table_copy",       "Slice table_copy",
    "Split strided_copy",  "Tile table_copy",    "ToLayout strided_copy",   "Transpose strided_copy",
    "Unary vector",        "Where typed",
};

// The candidates that accepted, all tested; nothing where f16 cannot hold the results.
std::optional<std::set<std::string>> check_candidates(const Layer& layer, const Conformance& conformance,
                                                      Precision precision) {
  const std::vector<Tensor> expected = run_reference(layer, conformance.inputs);
  if (precision == Precision::fp16 && !fit_half(expected)) return std::nullopt;
  // One bit per operand that may lie in two layouts; the last bit is that of the outputs.
  std::vector<std::size_t> movable;
  for (std::size_t i = 0; conformance.all_layouts && i < conformance.inputs.size(); ++i) {
    const Operand& operand = conformance.inputs[i];
    if (operand.tensor && !operand.constant && operand.tensor->shape().rank() >= 3) movable.push_back(i);
  }
  const bool output_movable =
      conformance.all_layouts &&
      std::any_of(expected.begin(), expected.end(), [](const Tensor& t) { return t.shape().rank() >= 3; });
  const unsigned combinations = 1U << (movable.size() + (output_movable ? 1 : 0));

  const Registry& registry = conformance.registry != nullptr ? *conformance.registry : default_registry();
  std::set<std::string> accepted;
  for (const Candidate& candidate : registry.candidates(layer.type(), DeviceKind::cpu)) {
    for (unsigned bits = 0; bits < combinations; ++bits) {
      std::vector<Layout> layouts(conformance.inputs.size(), Layout::row_major);
      for (std::size_t i = 0; i < movable.size(); ++i) {
        if (((bits >> i) & 1U) != 0) layouts[movable[i]] = Layout::channels_last;
      }
      const bool last = ((bits >> movable.size()) & 1U) != 0;
      Run run(layer, conformance, candidate, layouts, last ? Layout::channels_last : Layout::row_major,
              precision);
      if (!run.accepted()) continue;
      accepted.insert(candidate.name);
      run.check(expected);
      if (::testing::Test::HasFailure()) return accepted;
    }
  }
  return accepted;
}

}  // namespace

namespace {

// In fp16 or bf16.
void expect_stored(const Layer& layer, const Conformance& conformance, Precision precision,
                   const std::string& where) {
  const std::string_view name_of_it = precision_name(precision);
  const auto accepted = check_candidates(layer, rounded_to(conformance, stored_type(precision)), precision);
  if (!accepted) return;
  for (const std::string& name :
       precision == Precision::fp16 ? conformance.expected_fp16 : conformance.expected_bf16)
    EXPECT_TRUE(accepted->count(name) == 1)
        << "kernel " << name << " refuses " << name_of_it << "; " << where;
  // Layers of integers are not stored in 16 bits; a test's own registry need not hold kernels for it.
  const auto& candidates = default_registry().candidates(layer.type(), DeviceKind::cpu);
  if (conformance.registry != nullptr || candidates.back().name == kReference) return;
  EXPECT_FALSE(accepted->empty()) << "no kernel accepts " << name_of_it << "; " << where;
  for (const std::string& name : conformance.expected) {
    const bool reads = kStoredKernels.count(fmt::format("{} {}", layer.type(), name)) == 1 &&
                       conformance.widened.count(name) == 0;
    EXPECT_EQ(accepted->count(name) == 1, reads) << "kernel " << name << (reads ? " refuses " : " accepts ")
                                                 << name_of_it << " in all layouts; " << where;
    EXPECT_TRUE(reads || accepted->count(name + ", 16-bit storage") == 1)
        << "kernel " << name << " refuses " << name_of_it << "; " << where;
  }
}

}  // namespace

void expect_conformance(const Layer& layer, const Conformance& conformance) {
  const std::set<std::string> accepted = *check_candidates(layer, conformance, Precision::fp32);
  if (::testing::Test::HasFailure()) return;
  const std::string where = fmt::format("{} [{}], seed {}", layer.type(), layer.summary(), test_seed());
  for (const std::string& name : conformance.expected) {
    EXPECT_TRUE(accepted.count(name) == 1)
        << "kernel " << name << " refuses all layouts: "
        << refusal(layer, conformance.inputs, name).value_or("it accepts row_major") << "; " << where;
  }
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    expect_stored(layer, conformance, precision, where);
    if (::testing::Test::HasFailure()) return;
  }
}

std::optional<std::string> refusal(const Layer& layer, const std::vector<Operand>& inputs,
                                   std::string_view candidate) {
  std::vector<const TensorDesc*> descs;
  std::vector<std::shared_ptr<const Tensor>> constants;
  for (const Operand& input : inputs) {
    descs.push_back(input.tensor ? &input.tensor->desc() : nullptr);
    constants.push_back(input.constant ? input.tensor : nullptr);
  }
  const std::vector<TensorDesc> outputs = layer.infer(descs);
  for (const Candidate& c : default_registry().candidates(layer.type(), DeviceKind::cpu)) {
    if (c.name == candidate) return c.refuse({layer, descs, outputs, constants, Precision::fp32, 1});
  }
  return fmt::format("{} has no candidate '{}'", layer.type(), candidate);
}

}  // namespace pipit::internal::test
