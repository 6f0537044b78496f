// int8 MODEL FOLDER PLAN: calibrates a model on a folder of images, runs it in INT8, and shows the gain and the loss.
//
// PLAN is the JSON file to write. A hundred images of all classes are a good start.
#include <pipit/pipit.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

namespace {

struct Answers {
  std::vector<int> classes;
  double ms = 0;  // per image, with decoding and resizing, which take the same time in both precisions
};

Answers classify(pipit::Classifier classifier, const std::vector<std::filesystem::path>& images) {
  Answers answers;
  classifier.classify(images.at(0), 1);  // not timed: the first run is slower than the others
  const auto start = std::chrono::steady_clock::now();
  for (const auto& image : images) answers.classes.push_back(classifier.classify(image, 1).at(0).index);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  answers.ms = took.count() / static_cast<double>(images.size());
  return answers;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) throw pipit::Error("usage: int8 MODEL FOLDER PLAN");
  std::vector<std::filesystem::path> images;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2])) images.push_back(entry.path());

  // 1. Find the range of every tensor. The plan is a file: this step is done once, on any machine.
  for (const std::string& note : pipit::tools::calibrate(argv[1], images, {.plan = argv[3]}).notes)
    std::printf("note: %s\n", note.c_str());

  // 2. The same model twice. A precision is one option of loading; nothing else in a program changes.
  pipit::ClassifierOptions options;
  const Answers fp32 = classify(pipit::Classifier(argv[1], options), images);
  options.load.precision = pipit::Int8{.plan = argv[3]};
  const Answers int8 = classify(pipit::Classifier(argv[1], options), images);
  std::size_t same = 0;
  for (std::size_t i = 0; i < images.size(); ++i) same += fp32.classes[i] == int8.classes[i] ? 1 : 0;
  std::printf("fp32 %.2f ms, INT8 %.2f ms for an image; the same class for %zu of %zu images\n", fp32.ms,
              int8.ms, same, images.size());

  // 3. Where the error comes from. A layer with a low ratio of signal to noise can be kept in fp32, for example with
  //    pipit::Int8{.plan = argv[3], .keep = {"NAME=fp32"}}; `pipit tune` finds the best set of such layers.
  pipit::tools::DiffOptions diff;
  diff.shares =
      false;  // of the noise that each layer causes at the output, which takes two runs for each layer
  std::vector<pipit::tools::LayerError> layers = pipit::tools::diff(argv[1], images, argv[3], diff).layers;
  std::erase_if(layers, [](const auto& layer) { return layer.precision != pipit::Precision::int8; });
  std::sort(layers.begin(), layers.end(),
            [](const auto& a, const auto& b) { return a.error.sqnr_db < b.error.sqnr_db; });
  for (std::size_t i = 0; i < std::min<std::size_t>(5, layers.size()); ++i)
    std::printf("%5.1f dB  %s\n", layers[i].error.sqnr_db, layers[i].name.c_str());
} catch (const std::exception& e) {
  std::fprintf(stderr, "int8: %s\n", e.what());
  return 1;
}
