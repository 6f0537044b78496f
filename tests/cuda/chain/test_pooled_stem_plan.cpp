// What pooled_stem's groups do, with loops in their place: on the CPU, needs no GPU.
#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "layers/cuda/conv/pooled_stem/plan.h"
#include "tests/cuda/chain/random_chain.h"
#include "tests/cuda/seed.h"

namespace pipit::cuda {
namespace {

using test::draw;

PooledStemShape random_stem(std::mt19937& random, int element_bytes, int kernel_w) {
  PooledStemShape s;
  s.element_bytes = element_bytes;
  s.images = draw(random, 1, 3), s.channels = draw(random, 1, 4);
  s.in_h = draw(random, 9, 60), s.in_w = draw(random, 9, 60);
  s.stride_h = draw(random, 1, 4), s.stride_w = draw(random, 1, 4);
  s.pad_h = draw(random, 0, 3), s.pad_w = draw(random, 0, 3);
  s.mid_h = (s.in_h + 2 * s.pad_h - kPooledStemTaps) / s.stride_h + 1;
  s.mid_w = (s.in_w + 2 * s.pad_w - kernel_w) / s.stride_w + 1;
  s.pool_pad_h = draw(random, 0, 1), s.pool_pad_w = draw(random, 0, 1);
  const auto pooled = [&](int mid, int pad) { return std::max((mid + 2 * pad - 3) / 2 + 1, 1); };
  s.out_h = pooled(s.mid_h, s.pool_pad_h), s.out_w = pooled(s.mid_w, s.pool_pad_w);
  return s;
}

// A ring of rows that knows which row lies where, and whether anybody may still read it.
class Ring {
 public:
  explicit Ring(int rows) : rows_(rows) {}
  void write(int row, std::vector<int> values) { at_[row % rows_] = {row, std::move(values)}; }
  const std::vector<int>& read(int row) const {
    const auto& [there, values] = at_.at(row % rows_);
    EXPECT_EQ(there, row);
    return values;
  }

 private:
  int rows_;
  std::map<int, std::pair<int, std::vector<int>>> at_;
};

// A part's windows lie in its own columns of the convolution, and what is read of the image's rows holds its pixels.
void expect_part(const PooledStemPlan& plan, const StemPart& part) {
  const PooledStemShape& s = plan.shape;
  EXPECT_GE(part.mid_begin, 0);
  EXPECT_LE(part.mid_begin + plan.mid_columns, s.mid_w);
  const int first_mid = 2 * part.out_begin - s.pool_pad_w - part.mid_begin;
  for (int column = 0; column < part.out_columns; ++column) {
    for (int x = 0; x < 3; ++x) {
      const int wanted = std::clamp(2 * (part.out_begin + column) - s.pool_pad_w + x, 0, s.mid_w - 1);
      EXPECT_EQ(part.mid_begin + std::clamp(2 * column + first_mid + x, 0, plan.mid_columns - 1), wanted);
    }
  }
  EXPECT_EQ(part.pixel % 4, 0);
  EXPECT_EQ(part.pixel + part.lead, part.mid_begin * s.stride_w - s.pad_w);
  EXPECT_LE(part.lead + (plan.mid_columns - 1) * s.stride_w + kPooledStemPixels, plan.pitch);
  for (const int count : {1, 4}) {
    if (s.in_w % count != 0) continue;
    const int first = plan.first_read(part, count), end = first + plan.runs_of(count) * count;
    EXPECT_EQ(first % count, 0);
    EXPECT_GE(first, 0);
    EXPECT_LE(first, std::max(part.pixel, 0));
    EXPECT_LE(end, s.in_w);
    EXPECT_GE(end, std::min(part.pixel + plan.pitch, s.in_w));
  }
}

template <typename E>
void compare(unsigned seed) {
  std::mt19937 random(seed);
  int plans = 0, in_parts = 0;
  for (int i = 0; i < 60; ++i) {
    const int kernel_w = draw(random, 3, kPooledStemPixels);
    const PooledStemShape s = random_stem(random, sizeof(E), kernel_w);
    const int workers =
        draw(random, 0, 2) > 0 ? draw(random, 1, 40) : s.images * s.out_h * draw(random, 1, 5);
    const auto planned = plan_pooled_stem(s, workers);
    if (!std::holds_alternative<PooledStemPlan>(planned)) continue;
    const PooledStemPlan& plan = std::get<PooledStemPlan>(planned);
    ++plans, in_parts += plan.parts > 1 ? 1 : 0;
    ASSERT_TRUE(plan.parts == 1 || plan.step_rows == 1);
    EXPECT_TRUE(plan.parts == 1 || plan.parts * plan.steps * s.images <= workers);
    int columns = 0;
    for (int k = 0; k < plan.parts; ++k) {
      const StemPart part = plan.part_of(k);
      EXPECT_EQ(part.out_begin, columns);
      EXPECT_GT(part.out_columns, 0);
      columns += part.out_columns;
      expect_part(plan, part);
    }
    EXPECT_EQ(columns, s.out_w);
    const StemPart part = plan.part_of(draw(random, 0, plan.parts - 1));  // whose numbers are computed
    const std::size_t taps = static_cast<std::size_t>(kPooledStemTaps * kernel_w * s.channels);
    std::vector<E> weights(kUnitChannels * taps);
    for (E& w : weights) w = static_cast<E>(draw(random, -4, 4));
    std::vector<std::byte> packed(static_cast<std::size_t>(kPooledStemUnits * kUnitRows * kUnitChannels) *
                                  sizeof(E));
    pack_pooled_stem(s, kernel_w, reinterpret_cast<const std::byte*>(weights.data()), packed.data());
    std::vector<int> x(static_cast<std::size_t>(s.images * s.in_h * s.in_w * s.channels));
    for (int& v : x) v = draw(random, -4, 4);
    const auto pixel = [&](int image, int h, int w, int c) {
      const bool inside = h >= 0 && h < s.in_h && w >= 0 && w < s.in_w && c < s.channels;
      return inside ? x[static_cast<std::size_t>(((image * s.in_h + h) * s.in_w + w) * s.channels + c)] : 0;
    };

    // An output of the convolution by plain loops, and one of 64 columns as the kernel has it.
    const auto expected_mid = [&](int image, int h, int w, int o) {
      int sum = 0;
      for (int y = 0; y < kPooledStemTaps; ++y) {
        for (int v = 0; v < kernel_w; ++v) {
          for (int c = 0; c < s.channels; ++c)
            sum += pixel(image, h * s.stride_h - s.pad_h + y, w * s.stride_w - s.pad_w + v, c) *
                   weights[static_cast<std::size_t>(((o * kPooledStemTaps + y) * kernel_w + v) * s.channels +
                                                    c)];
        }
      }
      return sum;
    };
    constexpr int kRowBytes = kUnitChannels * static_cast<int>(sizeof(E));
    const auto weight_at = [&](int column, int row, int k) {
      E w{};
      const int byte = (row % 2 * 32 + k) * static_cast<int>(sizeof(E));
      std::memcpy(&w,
                  packed.data() + row / 2 * kUnitRows * kRowBytes + swizzled_byte(column, byte, kRowBytes),
                  sizeof(E));
      return w;
    };

    const int of_output = draw(random, 0, 15) * 4;  // four columns are enough to check
    for (int first = 0, worker = 0; worker < std::min(workers, s.images * plan.steps); ++worker) {
      const int all = s.images * plan.steps, there = std::min(workers, all);
      const int count = all / there + (worker < all % there ? 1 : 0);
      Ring image_ring(plan.image_rows), mid_ring(plan.mid_rows);
      std::vector<std::pair<RowRange, RowRange>> ahead;  // what the group that brings rows has done
      int mid_end = 0, image_end = 0;
      // The rows of the next step are there before this one's are read.
      const auto bring = [&](int at) {
        const int image = at / plan.steps, step = at % plan.steps;
        if (step == 0) mid_end = image_end = 0;
        const RowRange mid = plan.mid_of(step);
        const RowRange rows = PooledStemPlan::from(plan.image_of(mid), image_end);
        for (int row = rows.begin; row < rows.end; ++row) {
          std::vector<int> pixels;
          for (int w = 0; w < plan.pitch; ++w) {
            for (int c = 0; c < kPooledStemChannels; ++c)
              pixels.push_back(pixel(image, row - s.pad_h, part.pixel + w, c));
          }
          image_ring.write(row, std::move(pixels));
        }
        ahead.emplace_back(mid, PooledStemPlan::from(mid, mid_end));
        mid_end = mid.end, image_end = rows.end;
      };
      bring(first);
      for (int at = first; at < first + count; ++at) {
        const int image = at / plan.steps, step = at % plan.steps;
        const bool more = at + 1 < first + count, of_this_image = more && (at + 1) % plan.steps != 0;
        if (of_this_image) bring(at + 1);
        const auto [mid, fresh] = ahead[static_cast<std::size_t>(at - first)];
        for (int row = fresh.begin; row < fresh.end; ++row) {
          std::vector<int> sums;
          for (int w = 0; w < plan.mid_columns; ++w) {
            for (int c = 0; c < 4; ++c) {
              const int output = unit_output(true, sizeof(E), of_output + c);
              int sum = 0;
              for (int y = 0; y < kPooledStemTaps; ++y) {
                const std::vector<int>& pixels = image_ring.read(row * s.stride_h + y);
                for (int k = 0; k < 32; ++k)
                  sum += pixels[static_cast<std::size_t>((part.lead + w * s.stride_w) * kPooledStemChannels +
                                                         k)] *
                         weight_at(of_output + c, y, k);
              }
              ASSERT_EQ(sum, expected_mid(image, row, part.mid_begin + w, output))
                  << "case " << i << ", seed " << seed;
              sums.push_back(sum);
            }
          }
          mid_ring.write(row, std::move(sums));
        }
        // Others may have computed the next step's rows meanwhile: then these must still be there.
        if (of_this_image) {
          const RowRange next = ahead.back().second;
          for (int row = next.begin; row < next.end; ++row) mid_ring.write(row, {});
        }
        for (int r = step * plan.step_rows; r < std::min((step + 1) * plan.step_rows, s.out_h); ++r) {
          for (int y = 0; y < 3; ++y) {
            const int row = std::clamp(2 * r - s.pool_pad_h + y, 0, s.mid_h - 1);
            EXPECT_GE(row, mid.begin);
            EXPECT_LT(row, mid.end);
            mid_ring.read(row);
            // A row of padding stands for one that the window has as well.
            EXPECT_LE(std::abs(row - (2 * r - s.pool_pad_h + 1)), 1);
          }
        }
        if (more && !of_this_image) bring(at + 1);
      }
      first += count;
    }
  }
  EXPECT_GT(plans, 30);
  EXPECT_GT(in_parts, 2);
}

TEST(PooledStemPlan, ComputesTheConvolutionInBytes) {
  compare<std::int8_t>(test::gpu_seed() + 430);
}
TEST(PooledStemPlan, ComputesTheConvolutionInHalves) {
  compare<std::int16_t>(test::gpu_seed() + 431);
}

TEST(PooledStemPlan, SaysWhatItCannotDo) {
  PooledStemShape s{2, 1, 3, 224, 224, 2, 2, 3, 3, 112, 112, 1, 1, 56, 56};
  ASSERT_TRUE(std::holds_alternative<PooledStemPlan>(plan_pooled_stem(s, 132)));
  EXPECT_EQ(std::get<PooledStemPlan>(plan_pooled_stem(s, 132)).step_rows, 1);
  EXPECT_EQ(std::get<PooledStemPlan>(plan_pooled_stem(s, 132)).parts, 2);
  EXPECT_EQ(std::get<PooledStemPlan>(plan_pooled_stem(s, 132)).mid_columns, 57);
  s.images = 2;
  EXPECT_EQ(std::get<PooledStemPlan>(plan_pooled_stem(s, 132)).parts, 1);
  s.images = 32;
  EXPECT_EQ(std::get<PooledStemPlan>(plan_pooled_stem(s, 132)).step_rows, 2);
  s.out_w = 500, s.mid_w = 1000, s.in_w = 2000;
  EXPECT_THAT(std::get<std::string>(plan_pooled_stem(s, 132)), testing::HasSubstr("no room"));
}

}  // namespace
}  // namespace pipit::cuda
