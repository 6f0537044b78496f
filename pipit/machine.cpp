#include "pipit/machine.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/platform/device.h"
#include "engine/platform/thread_pool.h"
#include "models/image/decode.h"
#include "pipit/detail/checked.h"
#include "pipit/measuring/ceilings_json.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/machine.h"
#include "pipit/measuring/machine_ceilings.h"
#include "pipit/measuring/profiled_run.h"
#include "pipit/text.h"
#include "pipit/version.h"

namespace pipit::tools {

using namespace internal;

using Json = nlohmann::ordered_json;

MachineFacts examine_machine() {
  MachineFacts facts{detail::all_findings(), {}};
  Json json = {{"pipit", version()}, {"command", "doctor"}};
  json["findings"] = Json::array();
  for (const Finding& finding : facts.findings) {
    json["findings"].push_back({{"name", finding.name},
                                {"value", finding.value},
                                {"advice", finding.advice.empty() ? Json() : Json(finding.advice)}});
  }
  facts.json = detail::json_text(json);
  return facts;
}

std::string build_text() {
  const CudaStatus cuda = cuda_status();
  const ImageDecoders image = image_decoders();
  std::string text = fmt::format("pipit {}\ncpu   {}\njpeg  {}\npng   {}\nwebp  {}\ncuda  ", version(),
                                 counted(default_threads(), "thread"), image.jpeg, image.png,
                                 image.webp.empty() ? "not built in" : image.webp);
  if (!cuda.compiled) return text + "not built in";
  text += fmt::format("built with toolkit {}; ", cuda.toolkit);
  if (!cuda.problem.empty()) return text + cuda.problem;
  for (std::size_t i = 0; i < cuda.devices.size(); ++i) text += (i == 0 ? "" : ", ") + cuda.devices[i];
  const CudaLibraries libraries = cuda_libraries();
  return text + fmt::format("\ncublaslt  {}\ncudnn     {}", libraries.cublaslt, libraries.cudnn);
}

double MachineCeilings::flops(const std::string& products) const {
  double best = 0;
  for (const ArithmeticCeiling& ceiling : arithmetic) {
    if (ceiling.products == products) best = std::max(best, ceiling.flops.best);
  }
  return best;
}

CeilingsResult measure_ceilings(const CeilingsOptions& options) {
  detail::check_single_device(options.device);
  const DeviceKind device = options.device.kind;
  require_device(device);
  const int threads = options.device.threads == 0 ? default_threads() : options.device.threads;
  CeilingsResult result;
  result.file = detail::ceilings_file();
  result.kept_days = detail::kMaxDays;
  detail::KeptCeilings found;
  if (options.kept) {
    found = detail::kept_ceilings(result.file, device, 0, threads);
    if (!found.ceilings.known()) fail("{}; 'pipit ceilings' measures them", found.problem);
  } else {
    if (!result.file.empty()) detail::prepare_ceilings_file(result.file);
    found.ceilings = detail::measure_ceilings(device, 0, threads, options.progress);
    const std::string problem = result.file.empty() ? "" : detail::keep_ceilings(result.file, found.ceilings);
    if (!problem.empty())
      result.notes.push_back(problem + "; what other processes keep at the same moment may be lost");
  }
  // Rates that vary more are those of a busy machine.
  constexpr double kRestless = 0.15;
  if (const double spread = found.ceilings.spread(); spread > kRestless)
    result.notes.push_back(fmt::format(
        "rates vary by {:.0f} %: something else ran; measure again on a quiet machine", 100 * spread));
  result.ceilings = detail::public_ceilings(found.ceilings);
  result.days = found.days;
  Json json = {{"pipit", version()}, {"command", "ceilings"}, {"schema", 1}};
  json["file"] = result.file.empty() ? Json() : Json(result.file.string());
  json["days"] = result.days;
  json["ceilings"] = detail::ceilings_json(found.ceilings);
  result.json = detail::json_text(json);
  return result;
}

}  // namespace pipit::tools
