// batch_server MODEL BATCH REQUESTS: answers requests from many threads, up to BATCH of them in one run.
//
// The requests are random tensors from eight threads that each wait for their answer, as clients of a server do.
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
#include <string>
#include <thread>
#include <vector>

class BatchServer {
 public:
  BatchServer(const std::string& model, const pipit::LoadOptions& options)
      : model_(model, options), thread_([this](const std::stop_token& stop) { serve(stop); }) {}

  std::size_t input_size() const { return each(model_.inputs()[0]); }  // elements of one sample
  std::size_t runs() const { return runs_; }

  std::future<std::vector<float>> submit(std::vector<float> sample) {
    if (sample.size() != input_size()) throw pipit::Error("a sample has another number of elements");
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(sample), {}});
    filled_.notify_one();
    return waiting_.back().answer.get_future();
  }

 private:
  struct Request {
    std::vector<float> sample;
    std::promise<std::vector<float>> answer;
  };

  static std::size_t each(const pipit::TensorInfo& tensor) {
    return static_cast<std::size_t>(tensor.shape.elements() / tensor.shape[0]);
  }

  // Waits for requests and takes up to `most`, the batch size of a run; none once a stop is requested.
  std::vector<Request> take(const std::stop_token& stop, std::size_t most) {
    std::vector<Request> requests;
    std::unique_lock lock(mutex_);
    filled_.wait(lock, stop, [this] { return !waiting_.empty(); });
    for (; !waiting_.empty() && requests.size() < most; waiting_.pop_front())
      requests.push_back(std::move(waiting_.front()));
    return requests;
  }

  // The session holds the memory of a run, and one thread uses it. For more throughput start more such threads.
  void serve(const std::stop_token& stop) {
    const pipit::TensorInfo& input = model_.inputs()[0];
    const std::size_t most = static_cast<std::size_t>(input.shape[0]), size = each(model_.outputs()[0]);
    std::vector<float> batch(most * input_size());  // places that no request fills compute what nothing reads
    while (true) {
      std::vector<Request> requests = take(stop, most);
      if (requests.empty()) return;
      for (std::size_t i = 0; i < requests.size(); ++i)
        std::ranges::copy(requests[i].sample, &batch[i * input_size()]);
      const auto scores = session_.run({{batch, input.shape}})[0].values<float>();
      ++runs_;
      for (std::size_t i = 0; i < requests.size(); ++i)  // copied, because the next run overwrites the scores
        requests[i].answer.set_value({&scores[i * size], &scores[i * size] + size});
    }
  }

  pipit::CompiledModel model_;
  pipit::ModelSession session_ = model_.session();
  std::mutex mutex_;
  std::condition_variable_any filled_;
  std::deque<Request> waiting_;
  std::size_t runs_ = 0;
  std::jthread thread_;  // the last member: it ends before the others are destroyed
};

int main(int argc, char** argv) try {
  if (argc != 4) throw pipit::Error("usage: batch_server MODEL BATCH REQUESTS");
  pipit::LoadOptions options;
  options.batch = std::atoi(argv[2]);
  BatchServer server(argv[1], options);

  std::atomic<int> left = std::atoi(argv[3]), answered = 0;
  const auto client = [&] {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    while (left-- > 0) {
      std::vector<float> sample(server.input_size());
      for (float& x : sample) x = normal(random);
      const std::vector<float> scores = server.submit(std::move(sample)).get();
      answered += scores.empty() ? 0 : 1;
    }
  };
  std::vector<std::jthread> clients;
  for (int c = 0; c < 8; ++c) clients.emplace_back(client);
  clients.clear();  // waits for all of them
  std::printf("%d requests answered in %zu runs\n", answered.load(), server.runs());
} catch (const std::exception& e) {
  std::fprintf(stderr, "batch_server: %s\n", e.what());
  return 1;
}
