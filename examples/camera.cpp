// camera MODEL FRAMES: classifies the newest frame of a camera again and again, and allocates no memory in the loop.
//
// The camera is a thread that writes moving stripes at 100 frames a second, whether they are read or not.
#include <pipit/pipit.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <thread>
#include <vector>

static std::atomic<long> allocations =
    0;  // of the whole process, pipit's included if it is linked statically
void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

int main(int argc, char** argv) try {
  if (argc != 3) throw pipit::Error("usage: camera MODEL FRAMES");
  const pipit::CompiledModel model(argv[1]);
  const pipit::Shape shape = model.inputs()[0].shape;
  if (shape.rank() != 4 || shape[1] != 3) throw pipit::Error("not [1, 3, H, W]: " + shape.str());
  const auto plane = static_cast<std::size_t>(shape[2] * shape[3]);
  const auto width = static_cast<std::size_t>(shape[3]);
  const int frames = std::max(1, std::atoi(argv[2]));

  // All memory of the loop: three frames, the model's input, and the session. The camera writes one frame, the loop
  // reads another, and the third is the newest complete one; both sides exchange theirs with it.
  std::array<std::vector<std::uint8_t>, 3> buffer;
  for (auto& frame : buffer) frame.resize(3 * plane);
  std::atomic<unsigned> newest = 1;          // index of a buffer, and what is known of it:
  constexpr unsigned kFresh = 4, kLast = 8;  // the loop has not read it; no other frame follows
  std::vector<float> pixels(3 * plane);
  pipit::ModelSession session = model.session();
  session.run({{pixels, shape}});
  const std::jthread camera([&] {
    unsigned mine = 0;
    for (int n = 0; n < frames; ++n) {
      for (std::size_t i = 0; i < 3 * plane; ++i)
        buffer[mine][i] = static_cast<std::uint8_t>(8 * (i / 3 % width + static_cast<std::size_t>(n)));
      mine = newest.exchange(mine | kFresh | (n + 1 == frames ? kLast : 0)) & 3;
      newest.notify_one();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });

  const long before = allocations;
  long classified = 0, best = 0;
  for (unsigned taken = 2; (taken & kLast) == 0; ++classified) {
    for (unsigned seen = newest; (seen & kFresh) == 0; seen = newest) newest.wait(seen);
    taken = newest.exchange(taken & 3);
    const std::vector<std::uint8_t>& frame = buffer[taken & 3];
    // ImageNet's means and deviations; channels side by side become planes.
    constexpr std::array<float, 3> mean = {123.7F, 116.3F, 103.5F}, deviation = {58.4F, 57.1F, 57.4F};
    for (std::size_t i = 0; i < 3 * plane; ++i)
      pixels[i % 3 * plane + i / 3] = (static_cast<float>(frame[i]) - mean[i % 3]) / deviation[i % 3];
    const auto scores = session.run({{pixels, shape}})[0].values<float>();
    best = std::ranges::max_element(scores) - scores.begin();
  }
  std::printf("%d frames, %ld classified, the last as class %ld; %ld allocations\n", frames, classified, best,
              allocations - before);
} catch (const std::exception& e) {
  std::fprintf(stderr, "camera: %s\n", e.what());
  return 1;
}
