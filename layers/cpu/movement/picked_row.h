// A row of elements that come from places near each other in the source.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/graph/dtype.h"

namespace pipit::internal {

/// target[i] = source[places[i]] for elements of 1, 2, 4 or 8 bytes. Prepared once, then copied without allocating.
class PickedRow {
 public:
  PickedRow() = default;
  /// Places are elements, not negative; there is at least one.
  PickedRow(std::span<const std::int32_t> places, DType type);

  bool empty() const { return count_ == 0; }
  /// Whether registers are filled at once, not element by element.
  bool in_registers() const { return pick_ != nullptr; }
  /// Reads nothing of the source before the first place or after the last. The source has that place 0, and the
  /// target is not in it.
  void copy(std::byte* target, const std::byte* source) const;

  /// Windows of the source, of as many elements as a register of 64 bytes, that one register of the target is picked
  /// from at most.
  static constexpr int kMaxWindows = 4;
  /// What fills a register of the target: where its windows begin, and for every element its place in them.
  struct Register {
    std::array<std::int32_t, kMaxWindows> windows;
    std::array<std::uint8_t, 64> picks;
  };
  struct Row {
    std::span<const Register> registers;
    std::uint64_t read;     ///< of a window, one bit for each element
    std::uint64_t written;  ///< of the last register
  };

 private:
  using Pick = void (*)(std::byte* target, const std::byte* source, const Row& row);

  void find_windows(std::span<const std::int32_t> places, std::int64_t in_register);

  DType type_ = DType::u8;
  std::int64_t count_ = 0;
  std::vector<std::int32_t> places_;  // none where registers are filled
  std::vector<Register> registers_;
  std::uint64_t read_ = 0;
  std::uint64_t written_ = 0;
  Pick pick_ = nullptr;  // null: element by element
};

}  // namespace pipit::internal
