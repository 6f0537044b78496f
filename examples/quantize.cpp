// quantize MODEL FOLDER OUTPUT: calibrates a model on a folder of images and writes it as an INT8 ONNX file.
//
// OUTPUT is a model like any other: pipit and ONNX Runtime run it without a plan. It is compared with MODEL on the
// same images; for a figure that counts take others than those of the calibration.
#include <pipit/pipit.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 4) throw pipit::Error("usage: quantize MODEL FOLDER OUTPUT");
  const std::string model = argv[1], output = argv[3], plan = output + ".plan.json";
  std::vector<std::filesystem::path> images;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2])) images.push_back(entry.path());

  // 1. Ranges of all tensors, from the images. Progress may be reported from any thread, one call at a time.
  pipit::tools::CalibrateOptions calibration;
  calibration.progress = [](std::int64_t done, std::int64_t total) {
    std::fprintf(stderr, "\rcalibrating: %lld of %lld images", static_cast<long long>(done),
                 static_cast<long long>(total));
  };
  const pipit::tools::Calibration found = pipit::tools::calibrate(model, images, {.plan = plan}, calibration);
  std::fprintf(stderr, "\n");
  for (const std::string& note : found.notes) std::printf("note: %s\n", note.c_str());
  for (const pipit::tools::ExcludedImage& image : found.excluded)
    std::printf("not used: %s\n", image.path.c_str());

  // 2. The file, with the weights in 8 bits.
  const pipit::tools::QuantizedFile file = pipit::tools::quantize(model, plan, output);
  std::printf("%s: %lld bytes, %d layers in INT8, %d in floating point\n", output.c_str(),
              static_cast<long long>(file.bytes), file.int8_layers, file.float_layers);

  // 3. What it answers. The file keeps the preprocessing that the plan names.
  pipit::Classifier fp32(model), int8(output);
  int used = 0, same = 0;
  for (const auto& image : images) try {
      const int expected = fp32.classify(image, 1).at(0).index;
      same += int8.classify(image, 1).at(0).index == expected ? 1 : 0;
      ++used;
    } catch (const pipit::Error&) {  // excluded above
    }
  std::printf("the same class for %d of %d images\n", same, used);
} catch (const std::exception& e) {
  std::fprintf(stderr, "quantize: %s\n", e.what());
  return 1;
}
