#include "quant/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/base/error.h"

namespace pipit::internal {

namespace {

constexpr int kBins = 2 * Histogram::kSide;
// The finest width: 2^kFinest * kSide is far below what any scale resolves, and x / width stays finite in float.
constexpr int kFinest = -100;
constexpr std::int64_t kChunk = 1 << 16;
// Sums of two stay within 64 bits.
constexpr std::uint64_t kMaxCounts = std::uint64_t{1} << 62;

struct Range {
  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();
  std::uint32_t magnitude = 0;  // bits of the largest |x|; NaN is above infinity
};

Range range_of(std::span<const float> values) {
  Range r;
  for (const float x : values) {
    r.min = x < r.min ? x : r.min;
    r.max = x > r.max ? x : r.max;
    r.magnitude = std::max(r.magnitude, std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU);
  }
  return r;
}

// The smallest e with magnitude < kSide * 2^e.
int exponent_for(float magnitude) {
  int e = 0;
  std::frexp(magnitude, &e);  // magnitude < 2^e
  return std::max(e - std::countr_zero(static_cast<unsigned>(Histogram::kSide)), kFinest);
}

// Two tables in turn: a run of zeros would wait for its own last increment.
struct Counts {
  std::vector<std::uint32_t> even = std::vector<std::uint32_t>(kBins);
  std::vector<std::uint32_t> odd = std::vector<std::uint32_t>(kBins);
  std::uint64_t zeros = 0;
};

void tally(std::span<const float> values, float per_bin, Counts& counts) {
  std::size_t i = 0;
  const auto bin_of = [&](float x) {
    return static_cast<std::size_t>(static_cast<int>(std::floor(x * per_bin)) + Histogram::kSide);
  };
  for (; i + 1 < values.size(); i += 2) {
    ++counts.even[bin_of(values[i])];
    ++counts.odd[bin_of(values[i + 1])];
  }
  if (i < values.size()) ++counts.even[bin_of(values[i])];
  counts.zeros += static_cast<std::uint64_t>(std::count(values.begin(), values.end(), 0.0F));
}

}  // namespace

void Histogram::add(std::span<const float> values, ThreadPool& pool) {
  if (values.empty()) return;
  const auto size = static_cast<std::int64_t>(values.size());
  const std::int64_t chunks = (size + kChunk - 1) / kChunk;
  const auto chunk = [&](std::int64_t p) {
    return values.subspan(static_cast<std::size_t>(p * kChunk),
                          static_cast<std::size_t>(std::min(kChunk, size - p * kChunk)));
  };
  std::vector<Range> ranges(static_cast<std::size_t>(pool.size()));
  pool.parallel_for(chunks, [&](std::int64_t p, int worker) {
    Range& all = ranges[static_cast<std::size_t>(worker)];
    const Range r = range_of(chunk(p));
    all = {std::min(all.min, r.min), std::max(all.max, r.max), std::max(all.magnitude, r.magnitude)};
  });
  Range range;
  for (const Range& r : ranges)
    range = {std::min(range.min, r.min), std::max(range.max, r.max), std::max(range.magnitude, r.magnitude)};
  const float magnitude = std::bit_cast<float>(range.magnitude);
  if (!std::isfinite(magnitude)) {
    fail("{} among {} values: nothing can be calibrated on them",
         std::isnan(magnitude) ? "NaN" : "an infinity", values.size());
  }
  min_ = count_ == 0 ? range.min : std::min(min_, range.min);
  max_ = count_ == 0 ? range.max : std::max(max_, range.max);
  count_ += values.size();
  if (magnitude == 0) {
    zeros_ += values.size();
    if (!bins_.empty()) bins_[kSide] += values.size();
    return;
  }
  widen(exponent_for(magnitude));
  std::vector<Counts> counts(static_cast<std::size_t>(std::min<std::int64_t>(pool.size(), chunks)));
  const auto per_bin = static_cast<float>(std::ldexp(1.0, -exponent_));
  // A worker may have a higher number than there are chunks: each takes every n-th chunk instead.
  pool.parallel_for(static_cast<std::int64_t>(counts.size()), [&](std::int64_t c, int) {
    for (std::int64_t p = c; p < chunks; p += static_cast<std::int64_t>(counts.size()))
      tally(chunk(p), per_bin, counts[static_cast<std::size_t>(c)]);
  });
  for (const Counts& c : counts) {
    for (std::size_t b = 0; b < bins_.size(); ++b) bins_[b] += c.even[b] + std::uint64_t{c.odd[b]};
    zeros_ += c.zeros;
  }
}

void Histogram::merge(const Histogram& other) {
  if (other.count_ == 0) return;
  if (count_ > kMaxCounts || other.count_ > kMaxCounts) fail("a histogram's counts overflow");
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = count_ == 0 ? other.max_ : std::max(max_, other.max_);
  count_ += other.count_;
  zeros_ += other.zeros_;
  if (other.bins_.empty()) {
    if (!bins_.empty()) bins_[kSide] += other.count_;
    return;
  }
  // widen() makes bins of what was all zeros so far: without those of `other`.
  Histogram same = other;
  count_ -= other.count_, zeros_ -= other.zeros_;
  widen(other.exponent_);
  same.widen(exponent_);
  count_ += other.count_, zeros_ += other.zeros_;
  for (std::size_t b = 0; b < bins_.size(); ++b) bins_[b] += same.bins_[b];
}

double Histogram::width() const {
  return bins_.empty() ? 0 : std::ldexp(1.0, exponent_);
}

std::vector<std::uint64_t> Histogram::magnitudes() const {
  std::vector<std::uint64_t> out(kSide);
  if (bins_.empty()) return out;
  for (int b = 0; b < kSide; ++b) out[static_cast<std::size_t>(b)] = bin(b) + bin(-1 - b);
  out[0] -= zeros_;
  return out;
}

// Brings the bins to width 2^exponent, unless they are wider already.
void Histogram::widen(int exponent) {
  if (bins_.empty()) {
    bins_.assign(kBins, 0);
    bins_[kSide] = zeros_;
    exponent_ = exponent;
    return;
  }
  if (exponent <= exponent_) return;
  const int shift = std::min(exponent - exponent_, 31);
  std::vector<std::uint64_t> wider(kBins, 0);
  for (int b = -kSide; b < kSide; ++b) wider[static_cast<std::size_t>((b >> shift) + kSide)] += bin(b);
  bins_ = std::move(wider);
  exponent_ = exponent;
}

Histogram::State Histogram::state() const {
  State s{min_, max_, zeros_, exponent_, {}};
  // A gap of a few empty bins is shorter written out than as a run of its own.
  constexpr int kGap = 4;
  for (int b = -kSide, last = 0; b < kSide; ++b) {
    if (bin(b) == 0) continue;
    if (s.runs.empty() || b - last > kGap) s.runs.push_back({b, {}});
    Run& run = s.runs.back();
    run.counts.resize(static_cast<std::size_t>(b - run.first));
    run.counts.push_back(bin(b));
    last = b;
  }
  return s;
}

Histogram Histogram::from_state(const State& state) {
  Histogram h;
  h.min_ = state.min;
  h.max_ = state.max;
  h.zeros_ = state.zeros;
  if (!std::isfinite(h.min_) || !std::isfinite(h.max_) || h.min_ > h.max_)
    fail("a histogram of values from {} to {}", h.min_, h.max_);
  if (state.runs.empty()) {
    if (h.min_ != 0 || h.max_ != 0) fail("a histogram from {} to {} without a count", h.min_, h.max_);
    h.count_ = h.zeros_;
    return h;
  }
  h.exponent_ = state.exponent;
  if (state.exponent != exponent_for(h.max_magnitude()))
    fail("a histogram from {} to {} has bins of 2^{}", h.min_, h.max_, state.exponent);
  h.bins_.assign(kBins, 0);
  for (const Run& run : state.runs) {
    if (run.first < -kSide || run.first >= kSide ||
        run.counts.size() > static_cast<std::size_t>(kSide - run.first))
      fail("a histogram's run of {} bins from bin {}: there are bins {} to {}", run.counts.size(), run.first,
           -kSide, kSide - 1);
    for (std::size_t i = 0; i < run.counts.size(); ++i) {
      std::uint64_t& bin = h.bins_[static_cast<std::size_t>(run.first + kSide) + i];
      if (bin != 0) fail("a histogram's bin {} is counted twice", run.first + static_cast<int>(i));
      bin = run.counts[i];
      if (bin > kMaxCounts || h.count_ > kMaxCounts) fail("a histogram's counts overflow");
      h.count_ += bin;
    }
  }
  if (h.zeros_ > h.bins_[kSide])
    fail("a histogram counts {} zeros but {} values beside 0", h.zeros_, h.bins_[kSide]);
  return h;
}

}  // namespace pipit::internal
