// What row_chain's blocks do, with loops in their place: on the CPU, needs no GPU.
#include <gmock/gmock.h>

#include <cstring>
#include <variant>

#include "tests/cuda/chain/random_chain.h"
#include "tests/cuda/seed.h"

namespace pipit::cuda {
namespace {

// Elements are whole numbers of one byte, or of two where halves would be.
template <typename E>
using Elements = std::vector<E>;

template <typename E>
Elements<E> random_elements(std::size_t count, std::mt19937& random) {
  Elements<E> elements(count);
  for (E& e : elements) e = static_cast<E>(test::draw(random, -4, 4));
  return elements;
}

// What becomes of a sum: any function of small numbers serves.
int finish(int sum, int residual) {
  return (sum * 7 + residual) % 9 - 1;
}

// [out_c][taps][in_c] of every convolution.
template <typename E>
std::vector<Elements<E>> random_weights(const ConvChainShape& shape, std::mt19937& random) {
  std::vector<Elements<E>> weights;
  for (const ChainConv& conv : shape.convs) {
    weights.push_back(
        random_elements<E>(static_cast<std::size_t>(conv.out_c * (conv.window ? 9 : 1) * conv.in_c), random));
  }
  return weights;
}

// The last value, by plain loops.
template <typename E>
Elements<E> expected(const ConvChainShape& s, std::vector<Elements<E>> values,
                     const std::vector<Elements<E>>& weights) {
  for (std::size_t c = 0; c < s.convs.size(); ++c) {
    const ChainConv& conv = s.convs[c];
    const Elements<E>& x = values[static_cast<std::size_t>(conv.x)];
    const int taps = conv.window ? 9 : 1;
    Elements<E> y;
    for (int p = 0; p < s.rows() * s.width; ++p) {
      for (int o = 0; o < conv.out_c; ++o) {
        int sum = 0;
        for (int t = 0; t < taps; ++t) {
          const int h = p / s.width % s.height + (conv.window ? t / 3 - 1 : 0);
          const int w = p % s.width + (conv.window ? t % 3 - 1 : 0);
          if (h < 0 || h >= s.height || w < 0 || w >= s.width) continue;
          const int from = (p / s.width / s.height * s.height + h) * s.width + w;
          for (int k = 0; k < conv.in_c; ++k) {
            sum += x[static_cast<std::size_t>(from * conv.in_c + k)] *
                   weights[c][static_cast<std::size_t>((o * taps + t) * conv.in_c + k)];
          }
        }
        const int residual = conv.residual < 0 ? 0
                                               : values[static_cast<std::size_t>(conv.residual)]
                                                       [static_cast<std::size_t>(p * conv.out_c + o)];
        y.push_back(static_cast<E>(finish(sum, residual)));
      }
    }
    values.push_back(std::move(y));
  }
  return values.back();
}

// The blocks of one row, whose values lie alike; residuals are read where their outputs are.
template <typename E>
class Cluster {
 public:
  Cluster(const ConvChainShape& shape, const RowChainPlan& plan, int row)
      : shape_(shape), plan_(plan), row_(row), memory_(static_cast<std::size_t>(plan.values_bytes)) {}

  void read(const std::vector<Elements<E>>& inputs) {
    const int h = row_ % shape_.height;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const RowInput& in = plan_.inputs[i];
      for (int side = -1; side <= 1; ++side) {
        const int place = side < 0 ? in.above : side > 0 ? in.below : in.at;
        if (place < 0 || h + side < 0 || h + side >= shape_.height) continue;
        for (int p = 0; p < shape_.width; ++p) {
          std::memcpy(memory_.data() + place + p * in.pitch,
                      reinterpret_cast<const std::byte*>(inputs[i].data()) +
                          ((row_ + side) * shape_.width + p) * in.bytes,
                      static_cast<std::size_t>(in.bytes));
        }
      }
    }
  }

  // One part of all ranks; `to` is the chain's output.
  void run(std::size_t index, const std::vector<std::vector<std::byte>>& streams, std::int64_t stream_at,
           Elements<E>& to) {
    const RowPart& part = plan_.parts[index];
    const int out_c = shape_.convs[static_cast<std::size_t>(plan_.conv_of_part[index])].out_c;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      for (int o = 0; o < 32 << part.quads_log2; ++o) {
        for (int p = 0; p < shape_.width; ++p) {
          const int channel = first_row_output(part, rank, kBytes) + o;
          int sum = 0;
          for (int step = 0; step < part.steps; ++step) {
            const int from =
                part.x + p * part.x_pitch + plan_.places[index][static_cast<std::size_t>(step)] * 16;
            const std::byte* unit = streams[static_cast<std::size_t>(rank)].data() + stream_at +
                                    ((step << part.quads_log2) + o / 32) * kRowUnit;
            for (int k = 0; k < 32; k += kBytes) sum += load(from + k) * weight(unit, o % 32, k);
          }
          const int residual =
              part.residual < 0 ? 0 : load(part.residual + p * part.residual_pitch + channel * kBytes);
          const auto y = static_cast<E>(finish(sum, residual));
          if (part.y_pitch == 0) {
            to[static_cast<std::size_t>((row_ * shape_.width + p) * out_c + channel)] = y;
          } else {
            stores_.push_back({part.y + p * part.y_pitch + channel * kBytes, y});
          }
        }
      }
    }
    if (part.finishes == 0) return;
    for (const auto& [at, y] : stores_) std::memcpy(memory_.data() + at, &y, kBytes);
    stores_.clear();
  }

  // The row that a neighbour has at `pixel` of its memory.
  void take_row(const RowExchange& exchange, int side, const Cluster& from, int pixel) {
    for (int p = 0; p < shape_.width; ++p) {
      std::memcpy(memory_.data() + (side == 0 ? exchange.above : exchange.below) + p * exchange.pitch,
                  from.memory_.data() + pixel + p * exchange.pitch, static_cast<std::size_t>(exchange.bytes));
    }
  }

 private:
  static constexpr int kBytes = sizeof(E);

  int load(int at) const {
    E e;
    std::memcpy(&e, memory_.data() + at, kBytes);
    return e;
  }
  // A unit is in the order of the lanes of two pairs of products (PTX ISA, mma.m16n8k32 and m16n8k16, operand B).
  static int weight(const std::byte* unit, int output, int k) {
    const int product = output % 8 / 2, column = output / 8 * 2 + output % 2;
    const int lane = column * 4 + k % 16 / 4;
    E e;
    std::memcpy(&e, unit + product / 2 * 512 + lane * 16 + product % 2 * 8 + k / 16 * 4 + k % 4, kBytes);
    return e;
  }

  const ConvChainShape& shape_;
  const RowChainPlan& plan_;
  int row_;
  std::vector<std::byte> memory_;
  std::vector<std::pair<int, E>> stores_;
};

template <typename E>
Elements<E> run_plan(const ConvChainShape& shape, const RowChainPlan& plan,
                     const std::vector<Elements<E>>& inputs, const std::vector<Elements<E>>& weights) {
  std::vector<std::vector<std::byte>> streams;
  std::vector<std::int64_t> starts;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    starts.clear();
    streams.emplace_back(static_cast<std::size_t>(plan.stream_bytes));
    std::byte* to = streams.back().data();
    for (std::size_t p = 0; p < plan.parts.size(); ++p) {
      const ChainConv& conv = shape.convs[static_cast<std::size_t>(plan.conv_of_part[p])];
      const Elements<E>& of_conv = weights[static_cast<std::size_t>(plan.conv_of_part[p])];
      starts.push_back(to - streams.back().data());
      to += pack_row_part(plan.parts[p], rank, conv.window ? 9 : 1, conv.in_c, sizeof(E),
                          reinterpret_cast<const std::byte*>(of_conv.data()), to);
    }
    EXPECT_EQ(to - streams.back().data(), plan.stream_bytes);
  }
  std::vector<Cluster<E>> clusters;
  for (int row = 0; row < shape.rows(); ++row) {
    clusters.emplace_back(shape, plan, row);
    clusters.back().read(inputs);
  }
  Elements<E> y(static_cast<std::size_t>(shape.rows() * shape.width * shape.convs.back().out_c), 99);
  for (std::size_t p = 0; p < plan.parts.size(); ++p) {
    for (Cluster<E>& cluster : clusters) cluster.run(p, streams, starts[p], y);
    const RowPart& part = plan.parts[p];
    if (part.exchange < 0 || part.finishes == 0) continue;
    for (int row = 0; row < shape.rows(); ++row) {
      const RowExchange& exchange = plan.exchanges[static_cast<std::size_t>(part.exchange)];
      const auto r = static_cast<std::size_t>(row);
      if (row % shape.height > 0) clusters[r].take_row(exchange, 0, clusters[r - 1], part.y);
      if (row % shape.height + 1 < shape.height) clusters[r].take_row(exchange, 1, clusters[r + 1], part.y);
    }
  }
  return y;
}

template <typename E>
void compute_random_chains(std::mt19937& random) {
  int planned = 0;
  for (int i = 0; i < 24; ++i) {
    const int ranks = 1 << test::draw(random, 0, 1);
    ConvChainShape shape = test::random_chain(random, 32 * ranks, sizeof(E));
    shape.images = test::draw(random, 1, 2);
    shape.height = test::draw(random, 1, 4);
    shape.width = test::draw(random, 1, 3) == 1 ? test::draw(random, 33, 40) : test::draw(random, 1, 17);
    auto result = plan_row_chain(shape, shape.rows() * ranks);
    if (std::holds_alternative<std::string>(result)) continue;
    const auto& plan = std::get<RowChainPlan>(result);
    ++planned;
    EXPECT_LE(plan.ranks, ranks);
    EXPECT_LE(plan.shared_bytes + kRowReserved, kRowBlockShared);
    std::vector<Elements<E>> inputs;
    for (const int channels : shape.inputs) {
      inputs.push_back(
          random_elements<E>(static_cast<std::size_t>(shape.rows() * shape.width * channels), random));
    }
    const std::vector<Elements<E>> weights = random_weights<E>(shape, random);
    ASSERT_EQ(run_plan(shape, plan, inputs, weights), expected(shape, inputs, weights))
        << sizeof(E) << " bytes, case " << i << ", seed " << test::gpu_seed();
  }
  EXPECT_GT(planned, 6);
}

TEST(RowChainPlan, ItsPartsComputeTheChain) {
  std::mt19937 random(test::gpu_seed());
  compute_random_chains<std::int8_t>(random);
  compute_random_chains<std::int16_t>(random);
}

ConvChainShape bottlenecks(int images, int element_bytes) {
  ConvChainShape shape{images, 14, 14, element_bytes, {1024}, {}};
  for (int x = 0; x < 6; x += 3) {
    shape.convs.push_back({x, -1, 1024, 256, false});
    shape.convs.push_back({x + 1, -1, 256, 256, true});
    shape.convs.push_back({x + 2, x, 256, 1024, false});
  }
  return shape;
}

std::string refusal(const ConvChainShape& shape, int blocks) {
  const auto result = plan_row_chain(shape, blocks);
  const auto* reason = std::get_if<std::string>(&result);
  return reason == nullptr ? "" : *reason;
}

TEST(RowChainPlan, UsesAsManyBlocksAsThereAre) {
  const auto ranks = [](int images) {
    return std::get<RowChainPlan>(plan_row_chain(bottlenecks(images, 1), 132)).ranks;
  };
  EXPECT_EQ(ranks(1), 8);
  EXPECT_EQ(ranks(2), 4);
  EXPECT_EQ(ranks(9), 1);
  EXPECT_THAT(refusal(bottlenecks(10, 1), 132), testing::HasSubstr("more rows than blocks"));
}

TEST(RowChainPlan, SaysWhatItCannotDo) {
  ConvChainShape wide = bottlenecks(1, 2);
  wide.width = 65;
  EXPECT_THAT(refusal(wide, 132), testing::HasSubstr("64 pixels"));
  wide.width = 64;
  EXPECT_THAT(refusal(wide, 132), testing::HasSubstr("no room"));
  ConvChainShape deep = bottlenecks(1, 1);
  deep.convs[0].out_c = deep.convs[1].in_c = 1 << 29;
  EXPECT_THAT(refusal(deep, 132), testing::HasSubstr("no room"));
  ConvChainShape odd = bottlenecks(1, 1);
  odd.convs[0].out_c = odd.convs[1].in_c = 48;
  EXPECT_THAT(refusal(odd, 132), testing::HasSubstr("multiple of 32"));
  odd = bottlenecks(1, 1);
  odd.inputs[0] = odd.convs[0].in_c = 1000;
  EXPECT_THAT(refusal(odd, 132), testing::HasSubstr("32 bytes"));
}

// A block may be one exchange ahead of its neighbours: rows around of two that follow each other lie apart.
TEST(RowChainPlan, ExchangesTakeTurns) {
  ConvChainShape shape{1, 8, 8, 1, {64}, {}};
  for (int x = 0; x < 4; ++x) shape.convs.push_back({x, -1, 64, 64, true});
  const auto plan = std::get<RowChainPlan>(plan_row_chain(shape, 16));
  ASSERT_EQ(plan.exchanges.size(), 3U);
  for (std::size_t e = 0; e + 1 < plan.exchanges.size(); ++e) {
    EXPECT_NE(plan.exchanges[e].above, plan.exchanges[e + 1].above);
    EXPECT_NE(plan.exchanges[e].below, plan.exchanges[e + 1].below);
  }
  // Two values that wait for their windows at a time.
  ConvChainShape crossed{
      1, 8,    8,
      1, {64}, {{0, -1, 64, 64, false}, {0, -1, 64, 64, false}, {1, -1, 64, 64, true}, {2, 3, 64, 64, true}}};
  EXPECT_THAT(refusal(crossed, 16), testing::HasSubstr("across each other"));
}

}  // namespace
}  // namespace pipit::cuda
