// The CPU's KernelTimer.
#include <algorithm>
#include <limits>
#include <map>

#include "engine/base/clock.h"
#include "engine/plan/tuner.h"
#include "engine/platform/cache_size.h"
#include "engine/platform/host_memory.h"

namespace pipit::internal {

namespace {

// Bytes that fill one core's second-level cache twice over.
std::size_t eviction_bytes() {
  constexpr std::int64_t kMax = 16 << 20;
  return 2 * static_cast<std::size_t>(std::min(second_level_cache(), kMax));
}

class CpuTimer final : public KernelTimer {
 public:
  explicit CpuTimer(int threads)
      : pool_(shared_pool(threads)),
        other_bytes_(eviction_bytes()),
        other_(other_bytes_ * static_cast<std::size_t>(pool_->size())) {
    std::fill_n(other_.data(), other_.bytes(), std::byte{1});
  }

  void load(const NodeSpec& spec) override {
    inputs_.clear();
    outputs_.clear();
    owned_.clear();
    states_.clear();
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      if (spec.has_input(i) && spec.constant(i) == nullptr) bytes += spec.inputs[i]->bytes();
    }
    for (const TensorDesc& desc : spec.outputs) bytes += desc.bytes();
    if (const std::size_t most = available_host_memory(); bytes > most) {
      fail("its operands take {} bytes, {} are free: not timed", bytes, most);
    }
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      if (!spec.has_input(i)) {
        inputs_.emplace_back();
      } else if (const Tensor* constant = spec.constant(i)) {
        inputs_.push_back(constant->view());
      } else {
        fill_operand(owned_.emplace_back(*spec.inputs[i]).view());
        inputs_.push_back(owned_.back().view());
      }
    }
    for (const TensorDesc& desc : spec.outputs) outputs_.push_back(owned_.emplace_back(desc).view());
  }

  double warm_up(const Kernel& kernel) override {
    states_.insert_or_assign(&kernel, zeroed_host_buffer(kernel.state_bytes()));
    return time(kernel, 1);
  }

  double time(const Kernel& kernel, int runs) override {
    if (scratch_.bytes() < kernel.scratch_bytes()) scratch_ = HostBuffer(kernel.scratch_bytes());
    double best = std::numeric_limits<double>::infinity();
    for (int r = 0; r < runs; ++r) {
      evict();
      const Clock::time_point begin = Clock::now();
      kernel.run(inputs_, outputs_, RunContext{*pool_, scratch_.data(), nullptr, states_.at(&kernel).data()});
      best = std::min(best, milliseconds_since(begin));
    }
    return best;
  }

 private:
  // Every worker reads and writes memory of its own, most of the time.
  void evict() {
    constexpr std::size_t kLine = 64;
    pool_->parallel_for(pool_->size(), [&](std::int64_t task, int) {
      volatile std::byte* data = other_.data() + static_cast<std::size_t>(task) * other_bytes_;
      for (std::size_t i = 0; i < other_bytes_; i += kLine) data[i] = data[i];
    });
  }

  std::shared_ptr<ThreadPool> pool_;
  std::size_t other_bytes_;
  HostBuffer other_;
  HostBuffer scratch_{0};
  std::map<const Kernel*, HostBuffer> states_;  // of kernels that were warmed up
  std::vector<Tensor> owned_;
  std::vector<ConstTensorView> inputs_;
  std::vector<TensorView> outputs_;
};

}  // namespace

void fill_operand(const TensorView& host) {
  // A linear congruential generator (Numerical Recipes); its high bits are the good ones. Multiples of 2^-12: the
  // smallest non-zero value is far from a denormal, in 16 bits too.
  std::uint32_t state = 1;
  const auto next = [&state] {
    state = state * 1664525U + 1013904223U;
    return static_cast<float>(static_cast<std::int32_t>(state >> 19) - 4096) * 0x1p-12F;
  };
  const auto fill = [&]<typename T>(auto&& make) {
    T* data = host.as<T>();
    std::generate_n(data, host.desc.elements(), make);
  };
  switch (host.desc.dtype) {
    case DType::f32:
      return fill.operator()<float>(next);
    case DType::f64:
      return fill.operator()<double>(next);
    case DType::f16:
      return fill.operator()<Half>([&] { return to_half(next()); });
    case DType::bf16:
      return fill.operator()<BFloat16>([&] { return to_bfloat16(next()); });
    case DType::i8:
      return fill.operator()<std::int8_t>([&] { return static_cast<std::int8_t>(64 + 63 * next()); });
    case DType::u8:
      return fill.operator()<std::uint8_t>([&] { return static_cast<std::uint8_t>(64 + 63 * next()); });
    case DType::i32:
      return fill.operator()<std::int32_t>([] { return 1; });
    case DType::i64:
      return fill.operator()<std::int64_t>([] { return 1; });
    case DType::boolean:
      return fill.operator()<bool>([] { return true; });
  }
}

std::unique_ptr<KernelTimer> make_cpu_timer(int threads) {
  return std::make_unique<CpuTimer>(threads);
}

}  // namespace pipit::internal
