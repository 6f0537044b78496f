#include "layers/cpu/movement/table_copy.h"

#include <algorithm>
#include <cstring>

#include "engine/platform/simd.h"
#include "layers/common/strided_loop.h"
#include "layers/cpu/work_sharing.h"

namespace pipit::internal {

namespace {

// Rows below this are joined with their neighbours: starting a row costs as much as copying some hundred bytes. Rows
// that are copied element by element stay as short as that allows, so that one that equals the one before it is found.
constexpr std::int64_t kRowBytes = 2048;
constexpr std::int64_t kShortRowBytes = 256;
constexpr std::int64_t kMaxRowElements = 1 << 16;
// Runs below this, on average, are copied element by element, those below the other where that fills registers.
constexpr std::int64_t kRunBytes = 16;
constexpr std::int64_t kRegisterRunBytes = 64;

template <typename T>
PIPIT_INLINE inline void fill_all(T* to, const T* value, std::int64_t count) {
  const T element = *value;
  for (std::int64_t i = 0; i < count; ++i) to[i] = element;
}

}  // namespace

TableCopy::TableCopy(std::vector<Dim> dims, DType type, double fill)
    : type_(type), fill_(element_bytes(type, fill)), outer_(std::move(dims)) {
  for (const Dim& dim : outer_) rows_ *= std::ssize(dim.sources);
  if (rows_ == 0) return;
  std::stable_sort(outer_.begin(), outer_.end(), [](const Dim& a, const Dim& b) {
    // Dimensions of one element, whose steps say nothing, outermost.
    if ((a.sources.size() == 1) != (b.sources.size() == 1)) return a.sources.size() == 1;
    return a.step > b.step;
  });
  if (outer_.size() > kMaxLoopRank) fail("a copy of more than {} dimensions", kMaxLoopRank);
  const std::vector<Dim> all = outer_;
  merge_rows(kRowBytes);
  find_runs();
  if (runs_are_below(kRegisterRunBytes)) {
    outer_ = all;
    merge_rows(kShortRowBytes);
    find_runs();
    pick_elements();
    if (picked_.empty() && !runs_are_below(kRunBytes)) {
      outer_ = all;
      merge_rows(kRowBytes);
      find_runs();
    }
  }
  row_ = {};
}

void TableCopy::pick_elements() {
  const auto fits = [](std::int64_t source) {
    return source != kFill && source <= std::numeric_limits<std::int32_t>::max();
  };
  if (!runs_are_below(kRegisterRunBytes) || !std::all_of(row_.begin(), row_.end(), fits)) return;
  const std::vector<std::int32_t> places(row_.begin(), row_.end());
  PickedRow picked(places, type_);
  if (!picked.in_registers() && !runs_are_below(kRunBytes)) return;
  picked_ = std::move(picked);
  runs_ = {};
}

bool TableCopy::runs_are_below(std::int64_t bytes) const {
  return row_elements_ * static_cast<std::int64_t>(dtype_bytes(type_)) < std::ssize(runs_) * bytes;
}

void TableCopy::merge_rows(std::int64_t least_bytes) {
  row_ = {0};
  row_elements_ = 1;
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(type_));
  while (!outer_.empty()) {
    const std::vector<std::int64_t>& outer = outer_.back().sources;
    const std::int64_t elements = std::ssize(row_) * std::ssize(outer);
    const bool first = row_elements_ == 1;
    if (!first && (row_elements_ * bytes >= least_bytes || elements > kMaxRowElements)) break;
    std::vector<std::int64_t> joined;
    joined.reserve(static_cast<std::size_t>(elements));
    for (const std::int64_t from : outer) {
      for (const std::int64_t inner : row_)
        joined.push_back(from == kFill || inner == kFill ? kFill : from + inner);
    }
    row_ = std::move(joined);
    row_elements_ = elements;
    outer_.pop_back();
  }
  rows_ = 1;
  for (const Dim& dim : outer_) rows_ *= std::ssize(dim.sources);
}

void TableCopy::find_runs() {
  runs_ = {};
  for (std::int64_t i = 0; i < row_elements_; ++i) {
    const std::int64_t source = row_[static_cast<std::size_t>(i)];
    if (!runs_.empty()) {
      Run& last = runs_.back();
      const bool fills = source == kFill && last.source == kFill;
      const bool repeats = source != kFill && source == last.source && (last.repeats || last.count == 1);
      const bool follows =
          source != kFill && last.source != kFill && !last.repeats && source == last.source + last.count;
      if (fills || repeats || follows) {
        last.repeats = repeats;
        ++last.count;
        continue;
      }
    }
    runs_.push_back({i, 1, source, false});
  }
}

template <std::size_t Bytes>
void TableCopy::copy_row(std::byte* target, const std::byte* source) const {
  using T = Element<Bytes>;
  auto* to = reinterpret_cast<T*>(target);
  const auto* from = reinterpret_cast<const T*>(source);
  const auto* fill = reinterpret_cast<const T*>(fill_.data());
  if (source == nullptr) return simd<fill_all<T>>(to, fill, row_elements_);
  if (!picked_.empty()) return picked_.copy(target, source);
  for (const Run& run : runs_) {
    if (run.source == kFill || run.repeats) {
      fill_all<T>(to + run.begin, run.source == kFill ? fill : from + run.source, run.count);
    } else if (run.count == 1) {
      to[run.begin] = from[run.source];
    } else {
      std::memcpy(to + run.begin, from + run.source, static_cast<std::size_t>(run.count) * Bytes);
    }
  }
}

template <std::size_t Bytes>
void TableCopy::copy_rows(std::byte* target, const std::byte* source, std::int64_t begin,
                          std::int64_t end) const {
  const std::size_t dims = outer_.size();
  std::array<std::int64_t, kMaxLoopRank> index{};
  std::array<std::int64_t, kMaxLoopRank + 1> sources{};  // of the dimensions before one, together
  const auto find_sources = [&](std::size_t first) {
    for (std::size_t d = first; d < dims; ++d) {
      const std::int64_t step = outer_[d].sources[static_cast<std::size_t>(index[d])];
      sources[d + 1] = sources[d] == kFill || step == kFill ? kFill : sources[d] + step;
    }
  };
  std::int64_t rest = begin;
  for (std::size_t d = dims; d-- > 0;) {
    index[d] = rest % std::ssize(outer_[d].sources);
    rest /= std::ssize(outer_[d].sources);
  }
  find_sources(0);
  std::int64_t before = kFill;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t from = sources[dims];
    constexpr auto kBytes = static_cast<std::int64_t>(Bytes);
    std::byte* to = target + row * row_elements_ * kBytes;
    if (from != kFill && from == before) {  // the row before again
      std::memcpy(to, to - row_elements_ * kBytes, static_cast<std::size_t>(row_elements_ * kBytes));
    } else {
      copy_row<Bytes>(to, from == kFill ? nullptr : source + from * kBytes);
    }
    before = from;
    std::size_t d = dims;
    while (d-- > 0 && ++index[d] == std::ssize(outer_[d].sources)) index[d] = 0;
    if (row + 1 < end) find_sources(d);
  }
}

void TableCopy::run(std::byte* target, const std::byte* source, ThreadPool& pool) const {
  if (rows_ == 0) return;
  const std::int64_t row_bytes = row_elements_ * static_cast<std::int64_t>(dtype_bytes(type_));
  const std::int64_t step = std::max<std::int64_t>(1, kChunkBytes / row_bytes);
  with_element_size(type_, [&](auto bytes) {
    parallel_chunks(pool, rows_, step, [&](std::int64_t begin, std::int64_t end) {
      copy_rows<decltype(bytes)::value>(target, source, begin, end);
    });
  });
}

}  // namespace pipit::internal
