// batch_server MODEL BATCH REQUESTS: answers requests from many threads, up to BATCH of them in one run.
// Eight threads send the requests, random tensors. Each waits for its answer, as clients of a server do.
#include <pipit/pipit.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

struct Request {
  std::vector<float> sample;
  std::promise<std::vector<float>> scores;
};

int main(int argc, char** argv) try {
  if (argc != 4) throw pipit::Error("usage: batch_server MODEL BATCH REQUESTS");
  pipit::LoadOptions options;
  options.shapes.batch = std::atoi(argv[2]);
  const pipit::CompiledModel model(argv[1], options);
  const pipit::Shape input = model.inputs()[0].shape, output = model.outputs()[0].shape;
  const auto most = static_cast<std::size_t>(input[0]);
  const std::size_t in = static_cast<std::size_t>(input.elements()) / most;
  const std::size_t out = static_cast<std::size_t>(output.elements()) / most;
  std::mutex mutex;  // of the queue
  std::condition_variable_any filled;
  std::deque<Request> queue;
  int runs = 0;
  // A session holds the memory of a run, and one thread uses it. For more throughput start more such threads.
  const auto serve = [&](const std::stop_token& stop) {
    pipit::ModelSession session = model.session();
    std::vector<float> batch(most * in);  // samples that no request fills compute what nothing reads
    while (true) {
      std::vector<Request> some;  // the oldest requests, or none once a stop is requested
      std::unique_lock lock(mutex);
      filled.wait(lock, stop, [&] { return !queue.empty(); });
      for (; !queue.empty() && some.size() < most; queue.pop_front())
        some.push_back(std::move(queue.front()));
      lock.unlock();
      if (some.empty()) return;
      for (std::size_t i = 0; i < some.size(); ++i) std::ranges::copy(some[i].sample, &batch[i * in]);
      const auto scores = session.run({{batch, input}})[0].values<float>();
      ++runs;
      for (std::size_t i = 0; i < some.size(); ++i)  // copied: the next run overwrites the scores
        some[i].scores.set_value({&scores[i * out], &scores[i * out] + out});
    }
  };
  std::atomic<int> left = std::atoi(argv[3]), answered = 0;
  const auto request = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    while (left-- > 0) {
      Request mine{std::vector<float>(in), {}};
      for (float& x : mine.sample) x = normal(random);
      std::future<std::vector<float>> scores = mine.scores.get_future();
      std::unique_lock lock(mutex);
      queue.push_back(std::move(mine));
      lock.unlock();
      filled.notify_one();
      if (scores.get().size() == out) ++answered;
    }
  };
  {
    const std::jthread server(serve);
    std::vector<std::jthread> clients;
    for (unsigned seed = 0; seed < 8; ++seed) clients.emplace_back(request, seed);
  }  // waits for the clients, then stops the server
  std::printf("%d requests answered in %d runs\n", answered.load(), runs);
} catch (const std::exception& e) {
  std::fprintf(stderr, "batch_server: %s\n", e.what());
  return 1;
}
