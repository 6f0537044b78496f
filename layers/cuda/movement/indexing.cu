// Elements at positions that are data: GatherIndexed, ScatterIndexed.
#include "layers/ops/indexing.h"

#include <fmt/format.h>

#include "layers/common/dispatch.h"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/families.h"
#include "layers/cuda/movement/indexing_kernel.cuh"

namespace pipit::internal {

namespace {

using namespace cuda;

// Equal types, or floats and halves.
Refusal refuse_indexed(const NodeSpec& spec, std::span<const std::size_t> values) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  const DType y = spec.outputs[0].dtype;
  for (const std::size_t i : values) {
    const DType x = spec.inputs[i]->dtype;
    if (x != y && !(is_float_or_half(x) && is_float_or_half(y)))
      return fmt::format("{} is not converted to {} by this kernel", dtype_name(x), dtype_name(y));
  }
  return refuse_unless_row_major(spec);
}

class IndexedKernel : public Kernel {
 public:
  IndexedKernel(const IndexedAttributes& attributes, const NodeSpec& spec)
      : named_(attributes, spec.inputs[0]->shape, spec.inputs[1]->shape), layer_(spec.layer.type()) {}
  std::string fault_text(std::int64_t value) const override {
    return fmt::format("{}: index {} is out of range", layer_, value);
  }

 protected:
  NamedElements named_;

 private:
  std::string layer_;
};

class GatherIndexedKernel final : public IndexedKernel {
 public:
  explicit GatherIndexedKernel(const NodeSpec& spec)
      : IndexedKernel(layer_as<GatherIndexed>(spec.layer).attributes(), spec) {}
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto gather = [&](const auto& elements) {
      using Elements = std::decay_t<decltype(elements)>;
      launch("gather indexed", gather_indexed<Elements>, named_.points, context, named_, Indices(inputs[1]),
             elements, context.fault);
    };
    if (inputs[0].desc.dtype != outputs[0].desc.dtype)
      return gather(ConvertedElements{Out(outputs[0]), In(inputs[0])});
    with_element_size(outputs[0].desc.dtype, [&](auto size) {
      using T = Element<decltype(size)::value>;
      gather(MovedElements<T>{reinterpret_cast<T*>(outputs[0].data),
                              reinterpret_cast<const T*>(inputs[0].data)});
    });
  }
};

// Several updates of one element apply in their order, but threads run in any order. So the first and the last update
// of each element are found before anything is written.
class ScatterIndexedKernel final : public IndexedKernel {
 public:
  explicit ScatterIndexedKernel(const NodeSpec& spec)
      : IndexedKernel(layer_as<ScatterIndexed>(spec.layer).attributes().indexed, spec),
        reduction_(layer_as<ScatterIndexed>(spec.layer).attributes().reduction),
        size_(static_cast<std::size_t>(spec.outputs[0].elements())) {}
  std::size_t scratch_bytes() const override {
    return size_ * sizeof(int) * (reduction_ == ScatterReduction::none ? 1 : 3);
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    if (size_ == 0) return;
    Writers writers;
    writers.last = reinterpret_cast<int*>(context.scratch);
    if (reduction_ != ScatterReduction::none) {
      writers.first = reinterpret_cast<unsigned*>(writers.last + size_);
      writers.count = writers.last + 2 * size_;
    }
    PIPIT_CUDA(
        cudaMemsetAsync(context.scratch, 0xFF, scratch_bytes(), static_cast<cudaStream_t>(context.stream)));
    const Indices indices(inputs[1]);
    launch("scatter: writers", find_writers, named_.points, context, named_, indices, writers, context.fault);
    if (reduction_ == ScatterReduction::none) {
      replace(writers, inputs, outputs[0], context);
    } else {
      reduce(writers, inputs, outputs[0], context);
    }
  }

 private:
  void replace(const Writers& writers, std::span<const ConstTensorView> inputs, const TensorView& y,
               const RunContext& context) const {
    const auto size = static_cast<unsigned>(size_);
    const auto scatter = [&](const auto& data, const auto& updates) {
      using Elements = std::decay_t<decltype(data)>;
      launch("scatter", scatter_last<Elements>, size, context, size, writers, data, updates);
    };
    if (inputs[0].desc.dtype != y.desc.dtype || inputs[2].desc.dtype != y.desc.dtype)
      return scatter(ConvertedElements{Out(y), In(inputs[0])}, ConvertedElements{Out(y), In(inputs[2])});
    with_element_size(y.desc.dtype, [&](auto bytes) {
      using T = Element<decltype(bytes)::value>;
      auto* to = reinterpret_cast<T*>(y.data);
      scatter(MovedElements<T>{to, reinterpret_cast<const T*>(inputs[0].data)},
              MovedElements<T>{to, reinterpret_cast<const T*>(inputs[2].data)});
    });
  }
  void reduce(const Writers& writers, std::span<const ConstTensorView> inputs, const TensorView& y,
              const RunContext& context) const {
    const auto size = static_cast<unsigned>(size_);
    const auto scatter = [&]<typename W>(W) {
      launch("scatter reduced", scatter_reduced<W>, size, context, named_, Indices(inputs[1]), size, writers,
             reduction_, Out(y), In(inputs[0]), In(inputs[2]));
    };
    if (is_float_or_half(y.desc.dtype)) {
      scatter(float{});
    } else if (y.desc.dtype == DType::f64) {
      scatter(double{});
    } else {
      scatter(std::int64_t{});
    }
  }

  ScatterReduction reduction_;
  std::size_t size_;
};

Refusal refuse_gather_indexed(const NodeSpec& spec) {
  constexpr std::size_t kValues[] = {0};
  return refuse_indexed(spec, kValues);
}

Refusal refuse_scatter_indexed(const NodeSpec& spec) {
  constexpr std::size_t kValues[] = {0, 2};
  return refuse_indexed(spec, kValues);
}

template <typename K>
std::unique_ptr<Kernel> make_indexed(const NodeSpec& spec) {
  return std::make_unique<K>(spec);
}

}  // namespace

void register_cuda_indexing(Registry& registry) {
  constexpr const char* kName = "indexed";
  registry.add(GatherIndexed::kType, DeviceKind::cuda,
               {kName, refuse_gather_indexed, make_indexed<GatherIndexedKernel>});
  registry.add(ScatterIndexed::kType, DeviceKind::cuda,
               {kName, refuse_scatter_indexed, make_indexed<ScatterIndexedKernel>});
}

}  // namespace pipit::internal
