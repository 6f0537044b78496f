// classify MODEL FOLDER: names the best class of every image in a folder, with a thread for each CPU.
//
// MODEL is an ONNX file or a name that `pipit models` lists.
#include <pipit/pipit.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 3) throw pipit::Error("usage: classify MODEL FOLDER");

  // The images run in parallel, so each of them gets one thread. This is faster than the default, which runs one image
  // on all CPUs.
  pipit::ClassifierOptions options;
  options.load.device.threads = 1;
  const pipit::Classifier classifier(argv[1], options);

  // What the model's file leaves open is filled in with usual values. The notes say where that was a guess.
  std::printf("images: %s\n", classifier.preprocessing().c_str());
  for (const std::string& note : classifier.notes()) std::printf("note: %s\n", note.c_str());

  std::vector<std::filesystem::path> images;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2]))
    if (entry.is_regular_file()) images.push_back(entry.path());
  std::sort(images.begin(), images.end());

  std::vector<std::string> answers(images.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    // A copy shares the model's weights. It has its own memory for the values between layers, so each thread needs one.
    pipit::Classifier own = classifier;
    for (std::size_t i = next++; i < images.size(); i = next++) {
      try {
        const pipit::Prediction best = own.classify(images[i], 1).at(0);
        char share[16];
        std::snprintf(share, sizeof share, "%5.1f %%  ", 100 * best.probability);
        answers[i] = share + best.label;
      } catch (const pipit::Error& e) {  // not an image: the others still get their answer
        answers[i] = std::string("error: ") + e.what();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < std::max(1U, std::thread::hardware_concurrency()); ++t)
      threads.emplace_back(work);
  }  // here all threads have ended

  for (std::size_t i = 0; i < images.size(); ++i)
    std::printf("%s  %s\n", images[i].filename().c_str(), answers[i].c_str());
} catch (const std::exception& e) {
  std::fprintf(stderr, "classify: %s\n", e.what());
  return 1;
}
