#include "pipit/measuring/image_pipeline.h"
#include "engine/base/ceil_div.h"
#include "engine/base/clock.h"
#include "models/sample_file.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

namespace pipit::internal::detail {

namespace {

// Inputs of all slots together are kept within this, however large the images; one slot a runner is always there.
constexpr std::int64_t kMaxSlotBytes = std::int64_t{512} << 20;

// Images in flight are counted in those that one thread has ahead of it. On the CPU a thread that finds none left waits
// for the slowest one: with 4 each that is an eighth of the decoding time at most. A GPU is fed without such pauses.
std::int64_t slots_per_runner(const Session& session, std::int64_t threads, std::int64_t runners,
                              std::int64_t batch, std::int64_t batches) {
  const Graph& graph = session.plan().graph();
  const auto bytes = static_cast<std::int64_t>(graph.value(graph.inputs()[0]).desc.bytes());
  const std::int64_t ahead = (session.overlaps() ? 2 : 4) * threads;
  // One slot computing, one uploading, one being filled.
  const std::int64_t wanted =
      std::max<std::int64_t>(ceil_div(ahead, batch * runners), session.overlaps() ? 3 : 1);
  return std::max<std::int64_t>(
      std::min({wanted, ceil_div(batches, runners), kMaxSlotBytes / bytes / runners}), 1);
}

class Pipeline {
 public:
  Pipeline(std::span<Runner> runners, const Preprocess& preprocess, const ClassOutput& output,
           std::span<const std::filesystem::path> images,
           const std::function<void(const ImageResult&)>& consume)
      : runners_(runners),
        preprocess_(preprocess),
        inputs_(runners[0].plan->graph()),
        images_(images),
        consume_(consume),
        batch_(output.batch),
        values_(static_cast<std::size_t>(output.values)),
        pool_(runners[0].session->pool()) {
    if (inputs_.samples != batch_)
      fail("{}: not all inputs have {} samples in dimension 0: use a batch of 1", runners[0].model, batch_);
    const auto count = static_cast<std::int64_t>(runners.size());
    const std::int64_t slots = slots_per_runner(*runners[0].session, pool_.size(), count, batch_, batches());
    for (Runner& runner : runners_) runner.make_slots(static_cast<int>(slots));
    slots_.resize(static_cast<std::size_t>(slots * count));
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      Slot& slot = slots_[s];
      slot.runner = s % runners.size();
      slot.index = static_cast<int>(s / runners.size());
      slot.images.resize(static_cast<std::size_t>(batch_));
      slot.missing = batch_size(static_cast<std::int64_t>(s));
      for (int i = 0; i < static_cast<int>(inputs_.names.size()); ++i) {
        const TensorView input = runners_[slot.runner].session->slot_input(slot.index, i);
        std::fill_n(input.data, input.desc.bytes(), std::byte{});  // past the last image
        slot.inputs.push_back(input);
      }
    }
  }

  void run() {
    const std::int64_t total = static_cast<std::int64_t>(images_.size());
    const std::int64_t ahead = static_cast<std::int64_t>(slots_.size()) * batch_;
    const std::int64_t group = runners_[0].session->overlaps() ? total : ahead;
    for (std::int64_t first = 0; first < total; first += group) {
      const std::int64_t count = std::min(group, total - first);
      // Not an index per image: the pool would begin in several places of the list.
      std::atomic<std::int64_t> next{first};
      pool_.parallel_for(std::min<std::int64_t>(pool_.size(), count), [&](std::int64_t, int) {
        for (std::int64_t i = next++; i < first + count; i = next++) decode_or_fail(i);
      });
      std::unique_lock lock(mutex_);
      while (consume_next(lock)) {
      }
    }
  }

 private:
  struct Image {
    std::exception_ptr error;
    LoadedImage loaded;
    double decode_ms = 0;
  };
  // Batch b lies in slot b % slots_.size(), and there in turn batches b + slots_.size(), ...
  struct Slot {
    std::size_t runner = 0;
    int index = 0;  // among the runner's slots
    std::vector<TensorView> inputs;
    std::vector<Image> images;
    std::int64_t missing = 0;   // images of its batch still to be decoded
    std::int64_t readable = 0;  // images of the batch without an error
    bool submitted = false;     // every image is decoded and, where one is readable, the batch is in flight
  };

  std::int64_t batches() const { return ceil_div(static_cast<std::int64_t>(images_.size()), batch_); }
  std::int64_t batch_size(std::int64_t batch) const {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(images_.size()) - batch * batch_, 0, batch_);
  }
  Slot& slot_of(std::int64_t batch) { return slots_[static_cast<std::size_t>(batch) % slots_.size()]; }

  void decode_or_fail(std::int64_t image) {
    try {
      decode(image);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failed_ = true;
      changed_.notify_all();
      throw;
    }
  }

  // Threads take images in order and wait only for batches before their own, so the earliest batch in flight always
  // has all its threads at work.
  void decode(std::int64_t image) {
    const std::int64_t batch = image / batch_;
    Slot& slot = slot_of(batch);
    {
      std::unique_lock lock(mutex_);
      while (!failed_ && consumed_ + static_cast<std::int64_t>(slots_.size()) <= batch) {
        if (!consume_next(lock)) changed_.wait(lock);
      }
      if (failed_) return;
    }
    const auto begin = Clock::now();
    const std::int64_t k = image % batch_;
    Image& result = slot.images[static_cast<std::size_t>(k)];
    try {
      result.loaded = load_sample(images_[static_cast<std::size_t>(image)], inputs_, preprocess_, slot.inputs,
                                  k, runners_[slot.runner].normalizes);
    } catch (...) {
      result.error = std::current_exception();
      for (const TensorView& input : slot.inputs) {
        const std::size_t bytes = input.desc.bytes() / static_cast<std::size_t>(batch_);
        std::fill_n(input.data + static_cast<std::size_t>(k) * bytes, bytes, std::byte{});
      }
    }
    result.decode_ms = milliseconds_since(begin);

    const std::lock_guard lock(mutex_);
    slot.readable += result.error ? 0 : 1;
    if (--slot.missing > 0) return;
    if (slot.readable > 0) runners_[slot.runner].submit(slot.index);
    slot.submitted = true;
    changed_.notify_all();
  }

  // Consumes the earliest batch in flight, if it is submitted and no other thread is at it. The lock is open meanwhile.
  bool consume_next(std::unique_lock<std::mutex>& lock) {
    Slot& slot = slot_of(consumed_);
    if (failed_ || consuming_ || !slot.submitted) return false;
    consuming_ = true;
    lock.unlock();
    consume_batch(consumed_, slot);
    lock.lock();
    consuming_ = false;
    ++consumed_;
    slot.missing = batch_size(consumed_ - 1 + static_cast<std::int64_t>(slots_.size()));
    slot.readable = 0;
    slot.submitted = false;
    for (Image& image : slot.images) image = {};
    changed_.notify_all();
    return true;
  }

  void consume_batch(std::int64_t batch, const Slot& slot) {
    const std::int64_t count = batch_size(batch);
    SlotRun run;
    std::exception_ptr run_error;
    try {
      if (slot.readable > 0) run = runners_[slot.runner].collect(slot.index);
    } catch (const Error&) {
      run_error = std::current_exception();
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const Image& image = slot.images[static_cast<std::size_t>(i)];
      ImageResult result{.image = batch * batch_ + i,
                         .runner = slot.runner,
                         .error = image.error ? image.error : run_error,
                         .unreadable = image.error != nullptr,
                         .loaded = image.loaded,
                         .decode_ms = image.decode_ms};
      if (!result.error) {
        result.scores = {run.outputs[0].as<float>() + static_cast<std::size_t>(i) * values_, values_};
        result.run_ms = run.kernel_ms / static_cast<double>(slot.readable);
      }
      consume_(result);
    }
  }

  std::span<Runner> runners_;
  const Preprocess& preprocess_;
  SampleInputs inputs_;
  std::span<const std::filesystem::path> images_;
  const std::function<void(const ImageResult&)>& consume_;
  std::int64_t batch_;
  std::size_t values_;  // of an image
  ThreadPool& pool_;
  std::vector<Slot> slots_;

  std::mutex mutex_;  // guards everything below, and `missing`, `readable`, `submitted` of every slot
  std::condition_variable changed_;
  std::int64_t consumed_ = 0;  // batches before this one are done
  bool consuming_ = false;
  bool failed_ = false;
};

}  // namespace

void run_images(std::span<Runner> runners, const Preprocess& preprocess, const ClassOutput& output,
                std::span<const std::filesystem::path> images,
                const std::function<void(const ImageResult&)>& consume) {
  if (!images.empty()) Pipeline(runners, preprocess, output, images, consume).run();
}

}  // namespace pipit::internal::detail
