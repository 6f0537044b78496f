// Storage of 16 bits: every CPU kernel also runs on operands that are stored as f16 or bf16.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/work_sharing.h"
#include "layers/cpu_kernels.h"
#include "layers/ops/cast.h"

namespace pipit::internal {

namespace {

// Elements that one task converts.
constexpr std::int64_t kChunk = kChunkBytes / 2;

void widen(const ConstTensorView& x, float* y, ThreadPool& pool) {
  parallel_chunks(pool, x.desc.elements(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    widen_row(x.desc.dtype, x.data, begin, y + begin, end - begin);
  });
}

void narrow(const float* x, const TensorView& y, ThreadPool& pool) {
  parallel_chunks(pool, y.desc.elements(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    narrow_row(x + begin, y.desc.dtype, y.data, begin, end - begin);
  });
}

TensorDesc as_f32(TensorDesc desc) {
  if (is_stored_float(desc.dtype)) desc.dtype = DType::f32;
  return desc;
}

class Twin;

// The links of a chain with such nodes.
class TwinChain {
 public:
  explicit TwinChain(std::span<const ChainLink> links);
  ~TwinChain();
  TwinChain(const TwinChain&) = delete;
  TwinChain& operator=(const TwinChain&) = delete;
  std::span<const ChainLink> links() const { return links_; }

 private:
  std::vector<std::unique_ptr<const Twin>> nodes_;
  std::vector<ChainLink> links_;
};

// The same node with f32 where 16 bits are stored, and the same followers or chain. Nothing else is fused into it.
class Twin {
 public:
  explicit Twin(const NodeSpec& spec) : chain_(spec.fusion.chain) {
    for (const NodeSpec* follower : spec.fusion.followers) {
      followers_.push_back(std::make_unique<Twin>(*follower));
      follower_specs_.push_back(&followers_.back()->spec());
    }
    descs_.reserve(spec.inputs.size());
    for (const TensorDesc* input : spec.inputs) {
      if (input != nullptr) descs_.push_back(as_f32(*input));
      inputs_.push_back(input == nullptr ? nullptr : &descs_.back());
    }
    for (const TensorDesc& output : spec.outputs) outputs_.push_back(as_f32(output));
    spec_ = std::make_unique<NodeSpec>(spec);
    spec_->inputs = inputs_;
    spec_->outputs = outputs_;
    spec_->precision = Precision::fp32;
    spec_->fusion = {};
    spec_->fusion.followers = follower_specs_;
    spec_->fusion.chain = chain_.links();
  }
  const NodeSpec& spec() const { return *spec_; }

 private:
  std::vector<TensorDesc> descs_;
  std::vector<const TensorDesc*> inputs_;
  std::vector<TensorDesc> outputs_;
  std::vector<std::unique_ptr<Twin>> followers_;
  std::vector<const NodeSpec*> follower_specs_;
  TwinChain chain_;
  std::unique_ptr<NodeSpec> spec_;
};

TwinChain::TwinChain(std::span<const ChainLink> links) {
  for (const ChainLink& link : links) {
    nodes_.push_back(std::make_unique<const Twin>(*link.node));
    links_.push_back({&nodes_.back()->spec(), link.sources});
  }
}

TwinChain::~TwinChain() = default;

constexpr std::size_t kMaxOperands = 32;

Refusal refuse(const Candidate& candidate, const NodeSpec& spec) {
  if (!stores_16_bits(spec.precision)) return "for fp16 and bf16 only";
  if (spec.inputs.size() > kMaxOperands || spec.outputs.size() > kMaxOperands) return "too many operands";
  if (!candidate.refuse(spec)) return "the kernel takes 16 bits itself";
  return candidate.refuse(Twin(spec).spec());
}

// What run() reads: the node's inputs, and what its chain reads besides.
std::vector<const TensorDesc*> operands_of(const NodeSpec& first, std::span<const ChainLink> links) {
  std::vector<const TensorDesc*> operands(first.inputs.begin(), first.inputs.end());
  const std::size_t own = operands.size();
  for (const ChainLink& link : links) {
    for (std::size_t i = 0; i < link.sources.size(); ++i) {
      if (link.sources[i].kind != LinkSource::Kind::outside) continue;
      const std::size_t at = own + static_cast<std::size_t>(link.sources[i].index);
      operands.resize(std::max(operands.size(), at + 1), nullptr);
      operands[at] = link.node->inputs[i];
    }
  }
  return operands;
}

bool takes_chain(const Candidate& candidate, const NodeSpec& first, std::span<const ChainLink> links) {
  return stores_16_bits(first.precision) && operands_of(first, links).size() <= kMaxOperands &&
         candidate.fusions.chain(Twin(first).spec(), TwinChain(links).links());
}

std::int64_t macs_of(const NodeSpec& spec) {
  return spec.layer.work(spec.inputs, spec.outputs).macs;
}

class NarrowStorage final : public Kernel {
 public:
  NarrowStorage(const Candidate& candidate, const NodeSpec& spec) {
    inner_ = candidate.create(Twin(spec).spec());
    scratch_bytes_ = aligned(inner_->scratch_bytes());
    work_ = inner_->work();
    const std::span<const ChainLink> chain = spec.fusion.chain;
    std::int64_t macs = macs_of(spec);
    for (const ChainLink& link : chain) macs += macs_of(*link.node);
    if (work_.empty() && macs > 0)
      work_ = {{std::llround(static_cast<double>(macs) * inner_->kept_share()), Products::fp32}};
    for (const TensorDesc* input : operands_of(spec, chain)) inputs_.push_back(book(input));
    for (const TensorDesc& output : chain.empty() ? spec.outputs : chain.back().node->outputs)
      outputs_.push_back(book(&output));
  }

  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  bool reads_constant(std::size_t index) const override { return inner_->reads_constant(index); }
  double kept_share() const override { return inner_->kept_share(); }
  std::vector<KernelWork> work() const override { return work_; }
  std::size_t packed_bytes() const override { return inner_->packed_bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    std::array<ConstTensorView, kMaxOperands> in;
    std::array<TensorView, kMaxOperands> out;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      in[i] = inputs[i];
      if (inputs_[i] == kAsItIs || !inputs[i].present()) continue;
      in[i] = {as_f32(inputs[i].desc), context.scratch + inputs_[i]};
      widen(inputs[i], reinterpret_cast<float*>(context.scratch + inputs_[i]), context.pool);
    }
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      out[o] = outputs[o];
      if (outputs_[o] != kAsItIs) out[o] = {as_f32(outputs[o].desc), context.scratch + outputs_[o]};
    }
    inner_->run({in.data(), inputs.size()}, {out.data(), outputs.size()}, context);
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      if (outputs_[o] != kAsItIs) narrow(out[o].as<float>(), outputs[o], context.pool);
    }
  }

 private:
  static constexpr auto kAsItIs = static_cast<std::size_t>(-1);

  static std::size_t aligned(std::size_t bytes) {
    return (bytes + HostBuffer::kAlignment - 1) / HostBuffer::kAlignment * HostBuffer::kAlignment;
  }
  // Where the operand's f32 copy lies in the scratch.
  std::size_t book(const TensorDesc* desc) {
    if (desc == nullptr || !is_stored_float(desc->dtype)) return kAsItIs;
    const std::size_t offset = scratch_bytes_;
    scratch_bytes_ += aligned(as_f32(*desc).bytes());
    return offset;
  }

  std::unique_ptr<Kernel> inner_;
  std::vector<KernelWork> work_;
  std::size_t scratch_bytes_ = 0;
  std::vector<std::size_t> inputs_;
  std::vector<std::size_t> outputs_;
};

Refusal refuse_narrow_cast(const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const bool narrows = x.dtype == DType::f32 && is_stored_float(y.dtype);
  const bool widens = is_stored_float(x.dtype) && y.dtype == DType::f32;
  if (!narrows && !widens) return "not between f32 and 16 bits";
  if (x.layout != y.layout && !y.layouts_coincide()) return "input and output have different layouts";
  return std::nullopt;
}

void run_narrow_cast(const Cast& /*layer*/, std::span<const ConstTensorView> inputs,
                     std::span<const TensorView> outputs, const RunContext& context) {
  if (is_stored_float(outputs[0].desc.dtype)) {
    narrow(inputs[0].as<float>(), outputs[0], context.pool);
  } else {
    widen(inputs[0], outputs[0].as<float>(), context.pool);
  }
}

}  // namespace

void register_cpu_narrow_cast(Registry& registry) {
  add_layer_kernel<Cast>(registry, "vector", refuse_narrow_cast, run_narrow_cast);
}

void add_narrow_storage(Registry& registry) {
  for (const std::string& type : registry.layer_types(DeviceKind::cpu)) {
    const std::vector<Candidate> present = registry.candidates(type, DeviceKind::cpu);
    for (const Candidate& candidate : present) {
      Candidate stored;
      stored.name = candidate.name + ", 16-bit storage";
      stored.refuse = [candidate](const NodeSpec& spec) { return refuse(candidate, spec); };
      stored.create = [candidate](const NodeSpec& spec) {
        return std::make_unique<NarrowStorage>(candidate, spec);
      };
      if (candidate.variants) {
        stored.variants = [candidate](const NodeSpec& spec) { return candidate.variants(Twin(spec).spec()); };
      }
      if (candidate.kept_share) {
        stored.kept_share = [candidate](const NodeSpec& spec) {
          return candidate.kept_share(Twin(spec).spec());
        };
      }
      if (candidate.fusions.epilogue) {
        stored.fusions.epilogue = [candidate](const NodeSpec& spec, const NodeSpec& next) {
          return candidate.fusions.epilogue(Twin(spec).spec(), Twin(next).spec());
        };
      }
      if (candidate.fusions.chain) {
        stored.fusions.chain = [candidate](const NodeSpec& first, std::span<const ChainLink> links) {
          return takes_chain(candidate, first, links);
        };
        stored.fusions.chain_reads_outside = candidate.fusions.chain_reads_outside;
      }
      registry.add(type, DeviceKind::cpu, std::move(stored));
    }
  }
}

}  // namespace pipit::internal
