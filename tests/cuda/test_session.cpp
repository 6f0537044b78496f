// Sessions on a GPU: overlapped runs, and several sessions, threads and GPUs at once.
#include "engine/runtime/session.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "compile/compile.h"
#include "engine/cuda/runtime.h"
#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "tests/cuda/conformance.h"
#include "tests/support/run_graph.h"

namespace pipit::internal::test {
namespace {

using Bytes = std::vector<std::byte>;

// Two convolutions with a residual: every backend has work, and no kernel may see another run's input.
Graph small_graph(std::int64_t batch) {
  std::mt19937 random(7);
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({batch, 3, 33, 29})});
  const auto conv = [&](const std::string& name, ValueId in, std::int64_t from, std::int64_t to) {
    const ValueId w =
        builder.add_constant(name + "w", random_tensor(Shape({to, from, 3, 3}), random, -0.2F, 0.2F));
    const ValueId b = builder.add_constant(name + "b", random_tensor(Shape({to}), random));
    ConvAttributes attributes;
    attributes.window.kernel = {3, 3, 1};
    attributes.window.pad_begin = attributes.window.pad_end = {1, 1, 0};
    return builder.add1(name, std::make_shared<Conv>(attributes), {in, w, b});
  };
  const ValueId a = conv("first", x, 3, 24);
  const ValueId c = conv("second", a, 24, 24);
  builder.mark_output(
      builder.add1("sum", std::make_shared<Binary>(BinaryAttributes{BinaryKind::add}), {c, a}));
  builder.mark_output(x);
  return builder.build();
}

std::shared_ptr<const ExecutionPlan> gpu_plan(Precision precision, int gpu = 0,
                                              const std::string& kernel = {}) {
  CompileOptions options;
  options.planning.device = DeviceKind::cuda;
  options.planning.precision = precision;
  options.planning.gpu = gpu;
  options.planning.threads = 1;
  options.planning.prefer_kernels = {{kernel}};
  return compile(small_graph(2), options).plans[0];
}

std::vector<Bytes> copy(std::span<const ConstTensorView> outputs) {
  std::vector<Bytes> result;
  for (const ConstTensorView& view : outputs) result.emplace_back(view.data, view.data + view.desc.bytes());
  return result;
}

struct Sample {
  Tensor input;
  std::vector<Bytes> expected;
};

// Random inputs and what run() makes of them in a session of its own.
std::vector<Sample> samples(const std::shared_ptr<const ExecutionPlan>& plan, int count, unsigned seed) {
  std::mt19937 random(seed);
  Session session(plan);
  std::vector<Sample> result;
  for (int i = 0; i < count; ++i) {
    Sample& sample = result.emplace_back();
    sample.input = random_tensor(Shape({2, 3, 33, 29}), random);
    const ConstTensorView view = sample.input.view();
    sample.expected = copy(session.run({&view, 1}));
  }
  return result;
}

void fill(Session& session, int slot, const Sample& sample) {
  const TensorView view = session.slot_input(slot);
  std::memcpy(view.data, std::as_const(sample.input).view().data, view.desc.bytes());
}

// Nothing but a download between the upload of the constant and the answer.
TEST(GpuSession, AnOutputThatIsAConstantIsThereAtOnce) {
  PIPIT_NEEDS_GPU();
  for (std::int64_t n = 1; n <= 40'000; n *= 3) {
    std::mt19937 random(static_cast<unsigned>(n));
    const Tensor values = random_tensor(Shape({n}), random, 1.0F, 2.0F);
    GraphBuilder builder;
    builder.mark_output(builder.add_constant("c", values.clone()));
    CompileOptions options;
    options.planning.device = DeviceKind::cuda;
    Session session(compile(builder.build(), options).plans[0]);
    const Bytes got = copy(session.run({})).at(0);
    EXPECT_EQ(std::memcmp(got.data(), values.view().data, got.size()), 0) << n << " values";
  }
}

TEST(GpuSession, SlotsGiveWhatRunGivesInAnyOrder) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed());
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    const auto plan = gpu_plan(precision);
    const std::vector<Sample> given = samples(plan, 16, random());
    ASSERT_NE(given[0].expected, given[1].expected);
    Session session(plan);
    EXPECT_TRUE(session.overlaps());
    for (const int slots : {1, 2, 5}) {
      const bool timed = slots != 2;
      session.make_slots(slots, timed);
      for (int s = 0; s < slots; ++s)
        std::memset(session.slot_input(s).data, 0xFF, session.slot_input(s).desc.bytes());
      for (int round = 0; round < 20; ++round) {
        std::vector<int> order(static_cast<std::size_t>(slots));
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random);
        std::vector<const Sample*> in(order.size());
        for (const int slot : order) {
          in[static_cast<std::size_t>(slot)] = &given[random() % given.size()];
          fill(session, slot, *in[static_cast<std::size_t>(slot)]);
          session.submit(slot);
        }
        // run() between the slots takes its turn and disturbs none.
        const Sample& between = given[random() % given.size()];
        const ConstTensorView view = between.input.view();
        if (round % 3 == 0) {
          EXPECT_EQ(copy(session.run({&view, 1})), between.expected);
        }
        std::shuffle(order.begin(), order.end(), random);
        for (const int slot : order) {
          const SlotRun run = session.collect(slot);
          EXPECT_EQ(copy(run.outputs), in[static_cast<std::size_t>(slot)]->expected)
              << "slot " << slot << " of " << slots << ", round " << round;
          EXPECT_EQ(run.kernel_ms > 0, timed);
        }
      }
    }
  }
}

// `count` floats in memory of the GPU, `shift` floats past what is aligned.
class GpuFloats {
 public:
  GpuFloats(const TensorDesc& desc, std::size_t shift)
      : desc_(desc), shift_(shift * sizeof(float)), memory_(desc.bytes() + shift_) {
    clear();
  }
  void clear() {
    PIPIT_CUDA(cudaMemset(memory_.data(), 0xFF, memory_.bytes()));
    PIPIT_CUDA(cudaStreamSynchronize(nullptr));  // streams of the test do not wait for the default one
  }
  void set(const std::byte* from, cudaStream_t stream) {
    PIPIT_CUDA(cudaMemcpyAsync(view().data, from, desc_.bytes(), cudaMemcpyHostToDevice, stream));
  }
  Bytes get() const {
    Bytes bytes(desc_.bytes());
    PIPIT_CUDA(cudaMemcpy(bytes.data(), view().data, bytes.size(), cudaMemcpyDeviceToHost));
    return bytes;
  }
  TensorView view() const { return {desc_, memory_.data() + shift_}; }

 private:
  TensorDesc desc_;
  std::size_t shift_;
  cuda::DeviceBuffer memory_;
};

TEST(GpuSession, RunsInMemoryOfTheGpuOnAnyStream) {
  PIPIT_NEEDS_GPU();
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    const auto plan = gpu_plan(precision);
    const std::vector<Sample> given = samples(plan, 4, gpu_seed() + 5);
    const TensorDesc in = plan->graph().value(plan->graph().inputs()[0]).desc;
    Session session(plan);
    const cuda::Stream first, second;
    const std::vector<cudaStream_t> streams = {first, second, nullptr};
    // More sets of memory than the session remembers, some not aligned, and each several times.
    struct Memory {
      GpuFloats x, sum, copy;
    };
    std::vector<std::unique_ptr<Memory>> sets;
    for (std::size_t m = 0; m < 11; ++m) {
      const auto of = [&](std::size_t output) { return plan->outputs()[output].desc; };
      sets.push_back(std::make_unique<Memory>(Memory{
          GpuFloats(in, m % 3 == 1 ? 1 : 0), GpuFloats(of(0), m % 3 == 2 ? 1 : 0), GpuFloats(of(1), m % 2)}));
    }
    session.make_slots(1);
    for (int round = 0; round < 4; ++round) {
      for (std::size_t m = 0; m < sets.size(); ++m) {
        Memory& memory = *sets[m];
        const Sample& sample = given[(m + static_cast<std::size_t>(round)) % given.size()];
        const cudaStream_t stream = streams[m % streams.size()];
        memory.x.set(std::as_const(sample.input).view().data, stream);
        const ConstTensorView input = memory.x.view();
        const std::vector<TensorView> outputs = {memory.sum.view(), memory.copy.view()};
        session.run_on_device({&input, 1}, outputs, stream);
        // Other runs of the session take their turn.
        if (m % 4 == 1) {
          const ConstTensorView view = given[1].input.view();
          EXPECT_EQ(copy(session.run({&view, 1})), given[1].expected);
        }
        if (m % 4 == 2) {
          fill(session, 0, given[2]);
          session.submit(0);
          EXPECT_EQ(copy(session.collect(0).outputs), given[2].expected);
        }
      }
      PIPIT_CUDA(cudaDeviceSynchronize());
      for (std::size_t m = 0; m < sets.size(); ++m) {
        const Sample& sample = given[(m + static_cast<std::size_t>(round)) % given.size()];
        EXPECT_EQ(sets[m]->sum.get(), sample.expected[0]) << "set " << m << ", round " << round;
        EXPECT_EQ(sets[m]->copy.get(), sample.expected[1]) << "set " << m << ", round " << round;
        sets[m]->sum.clear();
        sets[m]->copy.clear();
      }
    }
  }
}

TEST(GpuSession, RefusesMemoryThatIsNotTheGpus) {
  PIPIT_NEEDS_GPU();
  const auto plan = gpu_plan(Precision::fp32);
  const std::vector<Sample> given = samples(plan, 1, gpu_seed() + 6);
  Session session(plan);
  const TensorDesc in = plan->graph().value(plan->graph().inputs()[0]).desc;
  const GpuFloats x(in, 0), sum(plan->outputs()[0].desc, 0), pass(plan->outputs()[1].desc, 0);
  const ConstTensorView host = given[0].input.view(), device = x.view();
  Tensor on_host(plan->outputs()[0].desc);
  const std::vector<TensorView> outputs = {sum.view(), pass.view()};
  const auto refused = [&](const ConstTensorView& input, const std::vector<TensorView>& into,
                           const char* text) {
    EXPECT_THAT(([&] {
                  session.run_on_device({&input, 1}, into, nullptr);
                }),
                testing::ThrowsMessage<Error>(testing::HasSubstr(text)));
  };
  refused(host, outputs, "input 'x' does not lie in memory of GPU 0");
  refused(device, {on_host.view(), pass.view()}, "does not lie in memory of GPU 0");
  refused(device, {sum.view(), sum.view()}, "output 'x' must be");
  refused(device, {sum.view(), x.view()}, "overlaps that of input 'x'");
  const cuda::PinnedBuffer pinned(in.bytes());
  refused({in, pinned.data()}, outputs, "input 'x' does not lie in memory of GPU 0");
  EXPECT_EQ(copy(session.run({&host, 1})), given[0].expected);
}

TEST(GpuSession, OneThreadCollectsWhileAnotherSubmits) {
  PIPIT_NEEDS_GPU();
  const auto plan = gpu_plan(Precision::fp16);
  const std::vector<Sample> given = samples(plan, 8, gpu_seed() + 1);
  Session session(plan);
  constexpr int kSlots = 3;
  constexpr int kRuns = 300;
  session.make_slots(kSlots);
  std::atomic<int> submitted{0};
  std::atomic<int> collected{0};
  int wrong = 0;
  std::thread collector([&] {
    for (int i = 0; i < kRuns; ++i) {
      while (submitted <= i) std::this_thread::yield();
      wrong += copy(session.collect(i % kSlots).outputs) != given[static_cast<std::size_t>(i) % 8].expected
                   ? 1
                   : 0;
      ++collected;
    }
  });
  for (int i = 0; i < kRuns; ++i) {
    while (collected <= i - kSlots) std::this_thread::yield();
    fill(session, i % kSlots, given[static_cast<std::size_t>(i) % 8]);
    session.submit(i % kSlots);
    ++submitted;
  }
  collector.join();
  EXPECT_EQ(wrong, 0);
}

TEST(GpuSession, RepeatsComputeWhatTheRunComputed) {
  PIPIT_NEEDS_GPU();
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    const auto plan = gpu_plan(precision);
    const std::vector<Sample> given = samples(plan, 2, gpu_seed() + 3);
    Session session(plan);
    const auto run = [&](const Sample& sample) {
      const ConstTensorView view = sample.input.view();
      return copy(session.run({&view, 1}));
    };
    // Before the graph is captured, and after.
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(run(given[0]), given[0].expected);
      const std::vector<double> times = session.device_session()->repeat_ms(5);
      ASSERT_EQ(times.size(), 5U);
      for (const double ms : times) {
        EXPECT_GT(ms, 0);
        EXPECT_LT(ms, 1000);
      }
      EXPECT_EQ(run(given[1]), given[1].expected);
    }
  }
}

TEST(GpuSession, MayGoAwayWithRunsInFlight) {
  PIPIT_NEEDS_GPU();
  const auto plan = gpu_plan(Precision::fp32);
  const std::vector<Sample> given = samples(plan, 1, gpu_seed() + 2);
  for (int round = 0; round < 10; ++round) {
    Session session(plan);
    session.make_slots(2);
    for (int slot = 0; slot < 2; ++slot) {
      fill(session, slot, given[0]);
      session.submit(slot);
    }
  }
  Session session(plan);
  const ConstTensorView view = given[0].input.view();
  EXPECT_EQ(copy(session.run({&view, 1})), given[0].expected);
}

// Threads that build plans and run sessions at once: on one GPU, and spread over all that there are.
TEST(GpuSession, ThreadsAndGpusDoNotDisturbEachOther) {
  PIPIT_NEEDS_GPU();
  const int gpus = static_cast<int>(cuda_status().devices.size());
  for (const std::string kernel : {"", "cudnn", "im2col_gemm", "implicit_gemm"}) {
    SCOPED_TRACE(kernel);
    std::vector<std::vector<Sample>> given;  // of each GPU: they need not be alike
    for (int gpu = 0; gpu < gpus; ++gpu)
      given.push_back(samples(gpu_plan(Precision::fp16, gpu, kernel), 8, gpu_seed() + 3));
    constexpr int kThreads = 6;
    std::vector<int> wrong(kThreads, 0);
    std::vector<std::string> errors(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const auto own = static_cast<std::size_t>(t);
        try {
          Session session(gpu_plan(Precision::fp16, t % gpus, kernel));
          session.make_slots(2);
          const auto sample = [&](int i) -> const Sample& {
            return given[own % given.size()][static_cast<std::size_t>(i + t) % 8];
          };
          for (int i = 0; i <= 40; ++i) {
            if (i < 40) {
              fill(session, i % 2, sample(i));
              session.submit(i % 2);
            }
            if (i > 0)
              wrong[own] += copy(session.collect((i - 1) % 2).outputs) != sample(i - 1).expected ? 1 : 0;
          }
        } catch (const Error& error) {
          errors[own] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(wrong, testing::Each(0));
    EXPECT_THAT(errors, testing::Each(""));
  }
}

TEST(GpuSession, UnknownGpuIsRefused) {
  PIPIT_NEEDS_GPU();
  EXPECT_THAT([] { gpu_plan(Precision::fp32, 1000); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("there is no GPU 1000")));
}

TEST(GpuSession, TooManySlotsAreAnErrorNotACrash) {
  PIPIT_NEEDS_GPU();
  const auto plan = gpu_plan(Precision::fp32);
  const auto absurd = static_cast<std::size_t>(1) << 50;
  EXPECT_THROW(cuda::PinnedBuffer{absurd}, Error);
  EXPECT_THROW(cuda::DeviceBuffer{absurd}, Error);
  const std::vector<Sample> given = samples(plan, 1, gpu_seed() + 4);  // and all still works
  Session session(plan);
  const ConstTensorView view = given[0].input.view();
  EXPECT_EQ(copy(session.run({&view, 1})), given[0].expected);
}

}  // namespace
}  // namespace pipit::internal::test
