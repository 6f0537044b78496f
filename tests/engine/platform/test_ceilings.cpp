#include "engine/platform/ceilings.h"

#include <gtest/gtest.h>

#include <atomic>

#include "engine/base/clock.h"
#include "engine/base/error.h"

namespace pipit::internal {
namespace {

MeasuredRate rate(double best) {
  return {best, best, best, 9};
}

TEST(MeasuredRate, OfRounds) {
  const MeasuredRate rates = rate_of({5, 1, 4, 2, 3, 6, 7, 8, 9, 10, 11});
  EXPECT_EQ(rates.best, 11);
  EXPECT_EQ(rates.median, 6);
  EXPECT_EQ(rates.p10, 2);
  EXPECT_EQ(rates.rounds, 11);
  EXPECT_DOUBLE_EQ(rates.spread(), 9.0 / 11);
  EXPECT_THROW(rate_of({}), Error);
}

TEST(MeasuredRate, StopsWhenTheMedianIsKnown) {
  int calls = 0;
  EXPECT_EQ(measure_rate([&] { return 100 + 0.1 * (++calls % 2); }).rounds, 9);
  // Twice as fast in every second round: never known.
  EXPECT_EQ(measure_rate([&] { return ++calls % 2 == 0 ? 100.0 : 200.0; }).rounds, 50);
}

TEST(MeasuredRate, CountsTheWorkOfAllWorkers) {
  ThreadPool pool(2);
  std::atomic<std::int64_t> most = 0;
  std::atomic<int> calls[2] = {0, 0};
  // 100 in a step that takes 0.1 ms: a million a second for each worker, less where they share a CPU.
  const MeasuredRate rates = measure_rate(pool, 100, [&](std::int64_t task, std::int64_t steps) {
    EXPECT_LT(task, 2);
    ++calls[task];
    if (steps > most) most = steps;
    const Clock::time_point begin = Clock::now();
    while (milliseconds_since(begin) < 0.1 * static_cast<double>(steps)) continue;
  });
  EXPECT_LE(rates.best, 2.01e6);
  EXPECT_GT(rates.best, 0);
  EXPECT_EQ(calls[0], calls[1]);
  EXPECT_GT(calls[0], rates.rounds);
  EXPECT_GE(most, 2);
}

TEST(Ceilings, FindsProductsAndUnit) {
  Ceilings ceilings;
  EXPECT_FALSE(ceilings.known());
  ceilings.arithmetic = {{Products::fp32, "baseline", rate(10), {}},
                         {Products::fp32, "avx2", rate(40), {}},
                         {Products::int8, "avx512vnni", rate(300), {}}};
  EXPECT_EQ(ceilings.find(Products::fp32)->unit, "avx2");
  EXPECT_EQ(ceilings.find(Products::fp32, Isa::baseline)->unit, "baseline");
  EXPECT_EQ(ceilings.find(Products::fp32, Isa::avx512)->unit, "avx2");
  EXPECT_EQ(ceilings.find(Products::int8, Isa::amx)->unit, "avx512vnni");
  EXPECT_EQ(ceilings.find(Products::fp16), nullptr);
}

TEST(Ceilings, BytesOfAMemory) {
  MemoryCeiling memory;
  memory.read = rate(100);
  memory.write = rate(50);
  memory.copy = rate(120);
  memory.add = rate(150);
  EXPECT_DOUBLE_EQ(memory.floor_ms(100, 0), 1000);
  EXPECT_DOUBLE_EQ(memory.floor_ms(0, 100), 2000);
  EXPECT_DOUBLE_EQ(memory.floor_ms(200, 50), 2000);  // reading; both together take 250 / 150 s
  EXPECT_DOUBLE_EQ(memory.floor_ms(100, 50), 1000);
  memory.add = memory.copy = rate(100);
  EXPECT_DOUBLE_EQ(memory.floor_ms(100, 50), 1500);
  EXPECT_EQ(memory.floor_ms(0, 0), 0);
}

TEST(Ceilings, SpreadIsThatOfTheLeastSteady) {
  Ceilings ceilings;
  ceilings.launches = rate(5);
  EXPECT_EQ(ceilings.spread(), 0);
  ceilings.memory.resize(1);
  ceilings.memory[0].write = {100, 90, 80, 9};
  EXPECT_DOUBLE_EQ(ceilings.spread(), 0.2);
  ceilings.arithmetic = {{Products::fp32, "avx2", {100, 70, 60, 9}, {}}};
  EXPECT_DOUBLE_EQ(ceilings.spread(), 0.4);
}

TEST(Products, HaveNames) {
  for (const Products products :
       {Products::fp32, Products::fp16, Products::bf16, Products::int8, Products::int16})
    EXPECT_EQ(find_products(products_name(products)), products);
  EXPECT_THROW((void)find_products("fp64"), Error);
}

}  // namespace
}  // namespace pipit::internal
