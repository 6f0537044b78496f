/// @file
/// How a model is read and compiled. The groups of options are those of the tools as well.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pipit/precision.h"
#include "pipit/progress.h"
#include "pipit/types.h"

namespace pipit {

/// How kernels are chosen where several can run a layer.
enum class Tuning : std::uint8_t {
  by_order,  ///< by a documented order and its cost models, never by time: the same kernels and bits every time
  all,  ///< all that accept a layer are timed; takes seconds to minutes, once where a cache keeps the times
};

/// The shapes of a run.
struct RunShapes {
  /// Samples of a run, at least 1. Unset: what the file fixes, else 1. Throws Error where the file fixes another
  /// number, and ArgumentError where `dimensions` or `inputs` say another one.
  std::optional<std::int64_t> batch = {};
  /// Extents of symbolic dimensions, by their names in the file.
  std::map<std::string, std::int64_t> dimensions = {};
  /// Shapes of inputs that the file leaves open, by input; these take precedence over `dimensions`.
  std::map<std::string, Shape> inputs = {};
};

/// Inputs that become constants, which decides conditions and shapes that depend on them. They are none of
/// CompiledModel::inputs().
struct InputConstants {
  /// Values by input, one number for all elements or one for each.
  std::map<std::string, std::vector<double>> values = {};
  /// The same from .npy files, by input.
  std::map<std::string, std::filesystem::path> arrays = {};
};

/// What runs a model.
struct DeviceOptions {
  /// Throws Error when there is no such device or the build has no support for it.
  DeviceKind kind = DeviceKind::cpu;
  /// For DeviceKind::cuda: ordinals of the GPUs that get a copy each. Empty: GPU 0.
  std::vector<int> gpus = {};
  /// CPU threads of a run; 0: all CPUs that this process may use, as affinity mask and control groups say, or at most
  /// as many of them as the environment variable PIPIT_NUM_THREADS says. Sessions with the same number share one pool.
  int threads = 0;
  /// For DeviceKind::cuda: layers without a GPU kernel run on the CPU, through copies; otherwise they are an error.
  bool allow_fallback = false;
};

/// Which kernels run a model, and on how much of a batch.
struct KernelOptions {
  /// How kernels are chosen.
  Tuning tuning = Tuning::by_order;
  /// File with the times of earlier runs. Tuning::all reads and adds to it; Tuning::by_order only takes what is in it,
  /// for this machine, and the order for all else. Empty: `tuning.json` in $PIPIT_CACHE_DIR, else
  /// `pipit/tuning.json` in the user's cache folder, for Tuning::all; else none.
  std::filesystem::path cache = {};
  /// Kernels to use wherever they accept a layer, as `pipit inspect --why` names them: "NAME", or "TYPE=NAME" for
  /// layers of one type, Conv for convolutions in every precision. "winograd" is each kernel named winograd_... Those
  /// for a type go first, then the order counts.
  std::vector<std::string> prefer = {};
  /// Kernels never to use, named so, too; goes before `prefer`. Without "winograd" convolutions on the CPU are
  /// slower, and about one decimal digit more exact.
  std::vector<std::string> exclude = {};
  /// On the CPU: how many samples of a batch go through all layers together; 0: all. Without a value it is chosen.
  std::optional<std::int64_t> micro_batch = {};
};

/// How a model is read and compiled. The defaults are those of the `pipit` command.
struct LoadOptions {
  RunShapes shapes = {};          ///< of a run
  InputConstants constants = {};  ///< inputs that become constants
  /// The one output to keep, by name. Empty: all.
  std::string output = {};
  DeviceOptions device = {};  ///< where the model runs
  /// What the model computes in: a Precision, Int8, Int8Dynamic or W4.
  ModelPrecision precision = {};
  KernelOptions kernels = {};  ///< what runs its layers
  /// Progress of loading by a CompiledModel, a Classifier or an AsyncRunner: "reading" and "compiling". Called in any
  /// thread, also while kernels are timed. Functions in pipit::tools have their own.
  tools::StageProgress progress = {};
};

}  // namespace pipit
