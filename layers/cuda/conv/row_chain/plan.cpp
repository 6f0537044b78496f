#include "layers/cuda/conv/row_chain/plan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

namespace pipit::internal::cuda {

namespace {

// Pixels 16 bytes apart modulo 128: the rows of a matrix that eight lanes load lie in different banks.
int pitch_of(int bytes) {
  return bytes + 16;
}

// Buffers of the values in shared memory. Values of one kind follow each other in a buffer. Those that a 3x3 reads have
// a pixel of zeros to the left and right and, after the row itself, two pairs of rows above and below that exchanges
// write in turns.
class Buffers {
 public:
  explicit Buffers(const ConvChainShape& shape) : shape_(shape) {
    const std::size_t count = shape.inputs.size() + shape.convs.size();
    channels.resize(count);
    windowed.assign(count, false);
    last_input_.assign(count, -1);
    last_residual_.assign(count, -1);
    for (std::size_t i = 0; i < shape.inputs.size(); ++i) channels[i] = shape.inputs[i];
    for (std::size_t c = 0; c < shape.convs.size(); ++c) {
      const ChainConv& conv = shape.convs[c];
      channels[shape.inputs.size() + c] = conv.out_c;
      const auto at = static_cast<int>(c);
      const auto x = static_cast<std::size_t>(conv.x);
      if (conv.window) windowed[x] = true;
      last_input_[x] = at;
      if (conv.residual >= 0) last_residual_[static_cast<std::size_t>(conv.residual)] = at;
    }
    offset.assign(count, 0);
    for (std::size_t i = 0; i < shape.inputs.size(); ++i) offset[i] = take(i, -1);
    // What the last one computes goes to memory.
    for (std::size_t c = 0; c + 1 < shape.convs.size(); ++c) {
      const std::size_t y = shape.inputs.size() + c;
      offset[y] = take(y, static_cast<int>(c));
      if (read_as_x(y)) latest_sent_ = static_cast<int>(c);
      if (windowed[y]) ++exchanges_, latest_exchange_ = static_cast<int>(c);
    }
  }

  int pitch(std::size_t value) const { return pitch_of(channels[value] * shape_.element_bytes); }
  int line(std::size_t value) const { return (shape_.width + (windowed[value] ? 2 : 0)) * pitch(value); }
  // The first pixel of the row itself, and of the row above (side 0) or below that turn `turn` writes.
  int row(std::size_t value) const { return offset[value] + (windowed[value] ? pitch(value) : 0); }
  int around(std::size_t value, int turn, int side) const {
    return row(value) + (1 + turn % 2 * 2 + side) * line(value);
  }
  bool read_as_x(std::size_t value) const { return last_input_[value] >= 0; }

  std::vector<int> channels, offset;
  std::vector<bool> windowed;
  int bytes = 0;

 private:
  struct Buffer {
    int channels;
    bool windowed;
    int offset;
    std::size_t value;
  };

  // A buffer of its kind whose value no block of the cluster still reads when another is at convolution `conv`. Blocks
  // wait for each other where outputs are sent, so any of them may be at the convolution after the latest that was
  // sent. A block reads all of x, but of a residual only its own outputs, and the thread that overwrites a residual has
  // read it. Zeros around a row stay where they are.
  int take(std::size_t value, int conv) {
    for (Buffer& b : buffers_) {
      if (conv < 0 || b.channels != channels[value] || b.windowed != windowed[value]) continue;
      const bool own_residual =
          shape_.convs[static_cast<std::size_t>(conv)].residual == static_cast<int>(b.value);
      if (last_input_[b.value] > latest_sent_ || last_residual_[b.value] > conv - (own_residual ? 0 : 1) ||
          around_is_read(b, value)) {
        continue;
      }
      b.value = value;
      return b.offset;
    }
    buffers_.push_back({channels[value], windowed[value], bytes, value});
    bytes += ((windowed[value] ? 5 : 1) * line(value) + 127) / 128 * 128;
    return buffers_.back().offset;
  }

  // Whether a neighbour may bring its rows of the value while this block brings or reads those around an input that the
  // buffer had. Those lie in the first pair. The neighbour has waited for this block's part of the previous exchange,
  // and for nothing later.
  bool around_is_read(const Buffer& b, std::size_t value) const {
    const bool same_pair = windowed[value] && b.value < shape_.inputs.size() && exchanges_ % 2 == 0;
    return same_pair && last_input_[b.value] > latest_exchange_;
  }

  const ConvChainShape& shape_;
  // The number of exchanges so far, and the convolutions whose outputs were exchanged and sent last.
  int exchanges_ = 0, latest_exchange_ = -1, latest_sent_ = -1;
  std::vector<int> last_input_, last_residual_;  // per value: the last convolution that reads it so; -1: none
  std::vector<Buffer> buffers_;
};

std::optional<std::string> obstacle(const ConvChainShape& shape) {
  if (shape.width > kRowMaxWidth) return "rows have more than 64 pixels";
  if (static_cast<int>(shape.inputs.size()) > kRowMaxInputs) return "it reads too many values";
  for (const ChainConv& conv : shape.convs) {
    // Here already, so that sums of offsets stay in 32 bits.
    if (std::max(conv.in_c, conv.out_c) > kRowBlockShared) return "values of a row leave no room for weights";
    if (conv.in_c * shape.element_bytes % 32 != 0) return "input channels do not fill 32 bytes";
    if (conv.out_c % 32 != 0) return "output channels are no multiple of 32";
  }
  return std::nullopt;
}

int ranks_of(const ConvChainShape& shape, int blocks) {
  int ranks = kRowMaxRanks;
  const auto fits = [&] {
    return shape.rows() * ranks <= blocks &&
           std::all_of(shape.convs.begin(), shape.convs.end(),
                       [&](const ChainConv& c) { return c.out_c % (32 * ranks) == 0; });
  };
  while (ranks > 0 && !fits()) ranks /= 2;
  return ranks;
}

// The tap (row, column) of a 3x3 that comes at place `order`: the middle row's, the upper one's, the lower one's.
struct Tap {
  int row, column;
};
Tap tap_of(int order) {
  constexpr int kRows[] = {1, 0, 2};
  return {kRows[order / 3], order % 3};
}

class Planner {
 public:
  Planner(const ConvChainShape& shape, RowChainPlan& plan) : shape_(shape), plan_(plan), values_(shape) {}

  std::optional<std::string> run() {
    for (std::size_t i = 0; i < shape_.inputs.size(); ++i) add_input(i);
    for (std::size_t c = 0; c < shape_.convs.size(); ++c) {
      if (!add_conv(c)) return "values that 3x3 windows read lie across each other";
    }
    if (static_cast<int>(plan_.parts.size()) > kRowMaxParts) return "it has too many parts";
    plan_.values_bytes = values_.bytes;
    plan_.sums = values_.bytes;
    plan_.constants = plan_.sums + kRowSumBytes;
    plan_.ring = (plan_.constants + plan_.constants_bytes + 127) / 128 * 128;
    plan_.ring_units = (kRowBlockShared - kRowReserved - plan_.ring) / kRowUnit;
    if (plan_.ring_units < 2 * kRowChunkUnits) return "values of a row leave no room for weights";
    plan_.shared_bytes = plan_.ring + plan_.ring_units * kRowUnit;
    return std::nullopt;
  }

 private:
  void add_input(std::size_t value) {
    RowInput input{values_.row(value), values_.pitch(value)};
    input.bytes = shape_.inputs[value] * shape_.element_bytes;
    input.read = input.bytes / (values_.read_as_x(value) ? 1 : plan_.ranks);
    if (values_.windowed[value]) {
      input.above = values_.around(value, 0, 0);
      input.below = values_.around(value, 0, 1);
    }
    plan_.inputs.push_back(input);
  }

  // False where it takes part in an exchange before the previous one has been awaited: rows around are written in
  // turns.
  bool add_conv(std::size_t c) {
    const ChainConv& conv = shape_.convs[c];
    const auto x = static_cast<std::size_t>(conv.x);
    const std::size_t y = shape_.inputs.size() + c;
    const bool last = c + 1 == shape_.convs.size();
    RowPart part;
    part.x = conv.window ? values_.offset[x] : values_.row(x);
    part.x_pitch = values_.pitch(x);
    const int steps_of_tap = conv.in_c * shape_.element_bytes / 32;
    part.steps = steps_of_tap * (conv.window ? 9 : 1);
    part.inner_steps = steps_of_tap * (conv.window ? 3 : 1);
    if (!last) part.y = values_.row(y), part.y_pitch = values_.pitch(y);
    part.sent = !last && values_.read_as_x(y) ? 1 : 0;
    if (conv.residual >= 0) {
      part.residual = values_.row(static_cast<std::size_t>(conv.residual));
      part.residual_pitch = values_.pitch(static_cast<std::size_t>(conv.residual));
    }
    part.rank_bytes = conv.out_c / plan_.ranks * shape_.element_bytes;
    part.row_bytes = shape_.width * conv.out_c * shape_.element_bytes;
    if (conv.window && x >= shape_.inputs.size()) {
      if (awaiting_ == static_cast<int>(x)) {
        part.awaited = static_cast<int>(plan_.exchanges.size()) - 1;
        awaiting_ = -1;
      } else if (exchanged_ != static_cast<int>(x)) {
        return false;
      }
    }
    if (!last && values_.windowed[y]) {
      if (awaiting_ >= 0) return false;
      add_exchange(y, part);
    }
    add_parts(static_cast<int>(c), conv, steps_of_tap, part);
    return true;
  }

  void add_exchange(std::size_t y, RowPart& part) {
    const int turn = static_cast<int>(plan_.exchanges.size());
    part.exchange = turn;
    part.exchange_at = static_cast<int>(plan_.exchange_bytes / 256);
    plan_.exchanges.push_back({values_.around(y, turn, 0), values_.around(y, turn, 1), values_.pitch(y),
                               values_.channels[y] * shape_.element_bytes, part.exchange_at});
    plan_.exchange_bytes +=
        static_cast<std::size_t>(shape_.rows()) * static_cast<std::size_t>(part.row_bytes);
    plan_.exchange_bytes = (plan_.exchange_bytes + 255) / 256 * 256;
    turns_[y] = turn;
    awaiting_ = exchanged_ = static_cast<int>(y);
  }

  void add_parts(int c, const ChainConv& conv, int steps_of_tap, RowPart part) {
    const int warps_of_tile = kRowWarps >> row_tiles_log2(shape_.width);
    const int constant_bytes = shape_.element_bytes == 1 ? 8 : 4;  // of an output: bias, in INT8 a multiplier
    const std::vector<std::uint16_t> places = places_of(conv, steps_of_tap);
    for (int quads = conv.out_c / plan_.ranks / 32; quads > 0;) {
      part.quads_log2 = std::bit_width(static_cast<unsigned>(std::min(warps_of_tile, quads))) - 1;
      const int together = 1 << part.quads_log2;
      quads -= together;
      part.finishes = quads == 0 ? 1 : 0;
      part.constants = plan_.constants_bytes;
      part.places = part.constants + together * 32 * constant_bytes;
      plan_.constants_bytes = part.places + static_cast<int>(places.size() * sizeof places[0]);
      plan_.parts.push_back(part);
      plan_.conv_of_part.push_back(c);
      plan_.places.push_back(places);
      plan_.stream_bytes += static_cast<std::int64_t>(part.steps) * together * kRowUnit;
      part.first_byte += together * 32 * shape_.element_bytes;
      part.awaited = -1;
    }
  }

  // Rounded up to whole copies of 16 bytes.
  std::vector<std::uint16_t> places_of(const ChainConv& conv, int steps_of_tap) const {
    const auto x = static_cast<std::size_t>(conv.x);
    const int turn = turns_[x];
    std::vector<std::uint16_t> places;
    for (int order = 0; order < (conv.window ? 9 : 1); ++order) {
      const Tap tap = tap_of(order);
      int at = 0;
      if (conv.window) {
        const int line = tap.row == 1 ? values_.row(x) : values_.around(x, turn, tap.row / 2);
        at = line - values_.row(x) + tap.column * values_.pitch(x);
      }
      for (int k = 0; k < steps_of_tap; ++k) places.push_back(static_cast<std::uint16_t>((at + k * 32) / 16));
    }
    places.resize((places.size() + 7) / 8 * 8);
    return places;
  }

  const ConvChainShape& shape_;
  RowChainPlan& plan_;
  const Buffers values_;
  std::vector<int> turns_ = std::vector<int>(values_.channels.size());  // per value: of its exchange
  int exchanged_ = -1;                                                  // the value of the newest exchange
  int awaiting_ = -1;  // the same as long as it has not been awaited
};

}  // namespace

std::variant<RowChainPlan, std::string> plan_row_chain(const ConvChainShape& shape, int blocks) {
  if (auto reason = obstacle(shape)) return *reason;
  RowChainPlan plan;
  plan.ranks = ranks_of(shape, blocks);
  if (plan.ranks == 0) return "there are more rows than blocks at a time";
  if (auto reason = Planner(shape, plan).run()) return *reason;
  return plan;
}

int first_row_output(const RowPart& part, int rank, int element_bytes) {
  return (rank * part.rank_bytes + part.first_byte) / element_bytes;
}

std::int64_t pack_row_part(const RowPart& part, int rank, int taps, int in_c, int element_bytes,
                           const std::byte* weights, std::byte* to) {
  const std::int64_t tap_bytes = static_cast<std::int64_t>(in_c) * element_bytes;
  const int steps_of_tap = part.steps / taps;
  const int first = first_row_output(part, rank, element_bytes);
  std::byte* at = to;
  for (int step = 0; step < part.steps; ++step) {
    const Tap of_order = tap_of(step / steps_of_tap);
    const int tap = taps == 1 ? 0 : of_order.row * 3 + of_order.column;
    const int k = step % steps_of_tap * 32;  // bytes
    for (int quad = 0; quad < 1 << part.quads_log2; ++quad) {
      for (int pair = 0; pair < 2; ++pair) {  // of products, 16 bytes a lane
        for (int lane = 0; lane < 32; ++lane) {
          for (int word = 0; word < 4; ++word, at += 4) {
            const int output = first + quad * 32 + row_channel(pair * 2 + word / 2, lane / 4);
            const int byte = k + lane % 4 * 4 + word % 2 * 16;
            std::memcpy(at, weights + (static_cast<std::int64_t>(output) * taps + tap) * tap_bytes + byte, 4);
          }
        }
      }
    }
  }
  return at - to;
}

}  // namespace pipit::internal::cuda
