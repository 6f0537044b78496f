// What the C API adds to a run: a model of one layer with four values, so that the run itself is next to nothing.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "pipit/pipit.h"
#include "pipit/pipit_c.h"
#include "tests/pipit/models.h"

namespace {

// Nanoseconds of a call: the median of rounds.
double median_ns(const std::function<void()>& call) {
  constexpr int kRounds = 101, kCalls = 2000;
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    rounds.push_back(time.count() / kCalls);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

}  // namespace

int main() {
  const std::string onnx = pipit::internal::test::chain(4, {"Relu"});
  const pipit::CompiledModel compiled(std::as_bytes(std::span(onnx)), "relu");
  pipit::ModelSession session = compiled.session();
  std::array<float, 4> x = {-1, 2, -3, 4}, y{};
  const std::array<pipit::ArrayView, 1> arrays = {
      pipit::ArrayView(std::span<const float>(x), pipit::Shape{1, 4, 1, 1})};
  const double in_cpp = median_ns([&] { session.run(arrays); });

  pipit_status* status = nullptr;
  pipit_model* model = pipit_model_load_bytes(onnx.data(), onnx.size(), "relu", nullptr, &status);
  pipit_session* c_session = pipit_session_new(model, 0, &status);
  pipit_tensor input, output, view;
  pipit_model_input(model, 0, nullptr, &input, &status);
  pipit_model_output(model, 0, nullptr, &output, &status);
  input.data = x.data();
  output.data = y.data();
  if (pipit_session_run(c_session, &input, 1, &output, 1, &status) != PIPIT_OK) {
    fmt::print(stderr, "bench_c_api: {}\n", pipit_status_message(status));
    return 1;
  }
  const double copied = median_ns([&] { pipit_session_run(c_session, &input, 1, &output, 1, &status); });
  const double viewed = median_ns([&] { pipit_session_run_views(c_session, &input, 1, &view, 1, &status); });
  fmt::print("ModelSession::run()        {:6.0f} ns\n", in_cpp);
  fmt::print("pipit_session_run()        {:6.0f} ns, {:+.0f}\n", copied, copied - in_cpp);
  fmt::print("pipit_session_run_views()  {:6.0f} ns, {:+.0f}\n", viewed, viewed - in_cpp);
  pipit_session_free(c_session);
  pipit_model_free(model);
  pipit_status_free(status);
  return 0;
}
