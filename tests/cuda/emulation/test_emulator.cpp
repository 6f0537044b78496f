// The emulator finds what is wrong with kernels that are broken on purpose, and nothing in those that are not.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include "tests/cuda/emulation/reference.h"
#include "tests/cuda/emulation/small_kernels.cuh"

namespace pipit::internal::test::emulation {
namespace {

using ::testing::HasSubstr;

// Orders of threads for every fault.
constexpr unsigned kOrders = 6;

Launch launch(int threads, int shared) {
  Launch how;
  how.block = dim3(static_cast<unsigned>(threads));
  how.shared = static_cast<std::size_t>(shared);
  return how;
}

template <Fault Broken>
Outcome pipeline(Launch how) {
  how.block = 160, how.shared = kSlots * kSlotBytes;
  std::vector<std::uint32_t> values(kSteps * kSlotBytes / 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint32_t>(i * i);
  const Global<std::uint32_t> x(values);
  Global<std::uint32_t> y(kSteps * 128);
  Outcome outcome = run(run_pipeline<Broken>, how, x.data(), y.data());
  const bool right = Broken == Fault::none && outcome.error.empty();
  for (std::size_t i = 0; right && i < y.size(); ++i)
    EXPECT_EQ(y.data()[i], values[i * 4] + values[i * 4 + 1] + values[i * 4 + 2] + values[i * 4 + 3]) << i;
  return outcome;
}

// x of run_product as it lies in memory.
Image operands() {
  std::mt19937 random = numbers(51);
  return {random, false, 1, 1, 64, 64};
}

template <Fault Broken>
Outcome product_into(Global<float>& sums, Launch how) {
  how.block = 128, how.shared = 64 * 128 + 1024;
  const Global<uint4> x(operands().bytes(false));
  return run(run_product<Broken>, how, x.data(), sums.data());
}

template <Fault Broken>
Outcome product(Launch how) {
  const Image x = operands();
  Global<float> sums(128 * 16);
  Outcome outcome = product_into<Broken>(sums, how);
  // A row's chunks of eight halves lie where the swizzle has them.
  const auto half = [&](std::size_t row, std::size_t k) {
    return x.values[row * 64 + ((k / 8) ^ row % 8) * 8 + k % 8];
  };
  for (std::size_t i = 0; outcome.error.empty() && i < sums.size(); ++i) {
    const std::size_t thread = i / 16, at = i % 16;  // its place among accumulators
    const std::size_t row = thread / 32 * 16 + thread % 32 / 4 + at / 2 % 2 * 8;
    const std::size_t column = at / 4 * 8 + thread % 4 * 2 + at % 2;
    float sum = 0;
    for (std::size_t k = 0; k < 16; ++k) sum += half(row, k) * half(column, k);
    EXPECT_NEAR(sums.data()[i], sum, 1e-5) << i;
  }
  return outcome;
}

template <Fault Broken>
Outcome exchange(Launch how) {
  how.block = 128, how.shared = 128 * 16;
  const Global<uint4> x(std::vector<std::uint32_t>(128 * 4, 7));
  Global<uint4> y(128);
  return run(run_exchange<Broken>, how, x.data(), y.data());
}

template <Fault Broken>
Outcome registers(Launch how) {
  how.block = 256, how.registers = 128;
  return run(run_registers<Broken>, how);
}

template <Fault Broken>
Outcome sends(Launch how) {
  how.grid = 2, how.block = 32, how.cluster = 2;
  Global<std::uint32_t> y(1);
  Outcome outcome = run(run_sends<Broken>, how, y.data());
  if (outcome.error.empty()) {
    EXPECT_EQ(y.data()[0], 2U);
  }
  return outcome;
}

// In every order of threads there is an error, which says so.
void expect_found(const std::function<Outcome(const Launch&)>& kernel, const std::string& what) {
  Launch how;
  for (unsigned order = 0; order < kOrders; ++order) {
    how.seed = gpu_seed() * 100 + order;
    how.lateness = order % 3 == 0 ? 0 : 1;
    const std::string error = kernel(how).error;
    EXPECT_THAT(error, HasSubstr(what)) << "seed " << how.seed;
    EXPECT_NE(error, "") << "seed " << how.seed;
  }
}
// In some order.
void expect_found_at_times(const std::function<Outcome(const Launch&)>& kernel, const std::string& what) {
  Launch how;
  unsigned found = 0;
  for (unsigned order = 0; order < kOrders * 4; ++order) {
    how.seed = gpu_seed() * 100 + order;
    found += kernel(how).error.find(what) != std::string::npos;
  }
  EXPECT_GT(found, 0U);
}

TEST(Emulator, FindsNothingWhereNothingIsWrong) {
  Launch how;
  for (unsigned order = 0; order < kOrders * 2; ++order) {
    how.seed = gpu_seed() * 100 + order;
    how.lateness = order % 3 == 0 ? 0 : 1;
    SCOPED_TRACE(how.seed);
    EXPECT_EQ(pipeline<Fault::none>(how).error, "");
    EXPECT_EQ(product<Fault::none>(how).error, "");
    EXPECT_EQ(exchange<Fault::none>(how).error, "");
    EXPECT_EQ(registers<Fault::none>(how).error, "");
    EXPECT_EQ(sends<Fault::none>(how).error, "");
  }
}

TEST(Emulator, RepeatsARun) {
  Launch how;
  how.seed = gpu_seed();
  const Outcome first = pipeline<Fault::none>(how), again = pipeline<Fault::none>(how);
  EXPECT_EQ(first.switches, again.switches);
  how.seed += 1;
  EXPECT_NE(pipeline<Fault::none>(how).switches, first.switches);
  EXPECT_EQ(first.copies, static_cast<unsigned>(kSteps));
}

TEST(Emulator, FindsMissingWaits) {
  expect_found(pipeline<Fault::no_wait_for_full>, "race in the shared memory of block 0");
  expect_found(pipeline<Fault::no_wait_for_empty>, "");  // a race, or one arrival more than the phase has
  expect_found(exchange<Fault::no_barrier>, "race in the shared memory of block 0");
  expect_found(exchange<Fault::copies_not_waited_for>, "copy (cp.async) that was not waited for");
}

TEST(Emulator, FindsBarriersThatCountWrongly) {
  expect_found(pipeline<Fault::too_few_bytes>, "deadlock");
  expect_found(pipeline<Fault::too_few_arrivals>, "deadlock");
  expect_found(pipeline<Fault::too_many_arrivals>, "");
  expect_found_at_times(pipeline<Fault::too_many_arrivals>, "race");
  expect_found(exchange<Fault::missing_warp>, "deadlock");
}

TEST(Emulator, FindsBarriersThatAreNotThereYet) {
  expect_found(pipeline<Fault::unordered_barriers>, "mbarrier");
  // An arrival that releases nothing orders only what has been published.
  expect_found(sends<Fault::unpublished_barriers>, "after the initialization of the mbarrier");
}

TEST(Emulator, FindsWhatEndsEarly) {
  expect_found_at_times(pipeline<Fault::ends_early>, "ends while a copy to its shared memory is in flight");
  expect_found(sends<Fault::ended_neighbour>, "end");
}

TEST(Emulator, FindsMissingFences) {
  expect_found(product<Fault::no_proxy_fence>, "no fence.proxy.async");
  expect_found(pipeline<Fault::no_fence_behind_reads>, "no fence.proxy.async after the read");
  expect_found(product<Fault::no_wgmma_fence>, "without wgmma.fence");
}

TEST(Emulator, FindsWhatIsTouchedUnderProducts) {
  expect_found(product<Fault::sums_changed_early>, "accumulator 6 was changed");
  // A race, or no fence, with a product that another warp issues later.
  expect_found(product<Fault::operand_changed_early>, "");
  // What is read too early is no number.
  Global<float> sums(128 * 16, 0);
  EXPECT_EQ(product_into<Fault::sums_read_early>(sums, {}).error, "");
  for (const float v : sums.values()) EXPECT_TRUE(std::isnan(v)) << v;
}

TEST(Emulator, FindsWhatIsOutOfRange) {
  expect_found(exchange<Fault::behind_shared_memory>, "a store of 16 bytes of shared memory out of range");
  expect_found_at_times(exchange<Fault::not_aligned>,
                        "is not aligned to 16 bytes");  // or the last is out of range
  expect_found(exchange<Fault::behind_global_memory>, "a fault at byte 2048 of 2048 of global memory");
  expect_found(pipeline<Fault::copy_behind_the_end>, "lie in no allocation");
}

TEST(Emulator, FindsLanesThatPart) {
  expect_found(exchange<Fault::divergent_lanes>, "different instructions");
}

TEST(Emulator, FindsRegistersThatAreNotThere) {
  expect_found(registers<Fault::too_many_registers>, "setmaxnreg.inc to 224");
}

// PTX lets two sends of a block to one word come in any order.
TEST(Emulator, FindsSendsWithoutOrder) {
  expect_found(sends<Fault::sent_twice>, "nothing orders st.async after");
}

TEST(Emulator, SaysWhatItDoesNotEmulate) {
  const Outcome outcome = run(run_unknown, launch(32, 0));
  EXPECT_THAT(outcome.error, HasSubstr("not emulated: bar.red.popc.u32"));
}

TEST(Emulator, SaysWhereAndWithWhichSeed) {
  Launch how;
  how.seed = 77;
  const std::string error = exchange<Fault::no_barrier>(how).error;
  EXPECT_THAT(error, HasSubstr("seed 77, block 0 thread"));
  // Where addr2line is there.
  if (error.find(".cuh:") != std::string::npos) {
    EXPECT_THAT(error, HasSubstr("small_kernels.cuh:"));
  }
}

}  // namespace
}  // namespace pipit::internal::test::emulation
