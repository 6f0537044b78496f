/// @file
/// Single layers over a range of settings: which convolutions a precision or kernel makes faster, and what structured
/// sparsity brings and costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipit/compiled_model.h"
#include "pipit/export.h"
#include "pipit/prune.h"
#include "pipit/speedup.h"

namespace pipit::tools {

/// Options that both sweeps have.
struct SweepRun {
  /// Where layers run; of GPUs GPU 0. DeviceOptions::gpus and allow_fallback are an ArgumentError.
  DeviceOptions device = {};
  /// Time limit of a row: the compared variants run in turns until it is used up, but at least 3 to 7 times.
  double seconds = 0;
  /// File for every row as a line of JSON, written as soon as it is measured; the line is on disk before the next row
  /// begins. Empty: none.
  std::filesystem::path results = {};
  /// Continue the sweep in `results`, which was written with the same settings, machine and version: its rows are not
  /// measured again. Otherwise the file must not exist.
  bool resume = false;
  /// Called before rows are measured, with what is measured next. May be empty. An exception from it ends the sweep;
  /// the rows of `results` stay.
  std::function<void(std::int64_t done, std::int64_t total, const std::string& next)> progress = {};
  /// Called with each note for the user, one sentence. May be empty.
  std::function<void(const std::string& note)> note = {};
};

/// The times of a run that took turns with others.
struct SweptTimes {
  double ms = 0;       ///< median
  double low_ms = 0;   ///< first quartile
  double high_ms = 0;  ///< third quartile
  int turns = 0;       ///< how often it ran
  /// The medians of up to 60 parts of the turns, in their order, for compare().
  std::vector<double> samples_ms;
};

/// A square convolution with a bias, of one group and without activation, padded by kernel / 2.
struct ConvPoint {
  std::int64_t batch = 1;   ///< images
  std::int64_t in = 1;      ///< input channels
  std::int64_t out = 1;     ///< output channels
  std::int64_t size = 1;    ///< height and width of the images
  std::int64_t kernel = 1;  ///< height and width of the window
  std::int64_t stride = 1;  ///< in both directions

  /// "4x8x64x64:16x3x3:s2", as SparsitySweepOptions::layers takes it.
  PIPIT_API std::string name() const;
  /// Multiply-accumulates, including those on padding.
  PIPIT_API double macs() const;
};

/// Every combination of the lists. The default has few channels and every size of image and window.
struct ConvGrid {
  std::vector<std::int64_t> batch{1, 4, 8, 16};           ///< images
  std::vector<std::int64_t> in{1, 3, 8, 16, 32};          ///< input channels
  std::vector<std::int64_t> out{3, 8, 16, 32, 64};        ///< output channels
  std::vector<std::int64_t> size{32, 64, 128, 256, 512};  ///< heights and widths of images
  std::vector<std::int64_t> kernel{1, 3, 5, 7, 9, 11};    ///< heights and widths of windows
  std::vector<std::int64_t> stride{1, 2};                 ///< strides
  /// Otherwise combinations that are rare in networks or take very long are left out: fewer outputs than inputs,
  /// 256x256 and larger with 9x9 and larger, 512x512 with 7x7 and larger or 16 images. Of the default grid 3686 remain.
  bool all = false;

  /// In the order of the lists, the batch slowest; no point twice.
  PIPIT_API std::vector<ConvPoint> points() const;
};

/// A baseline that a row of convolutions is compared with.
struct ConvBase {
  std::string base;        ///< as ConvSweepOptions::bases names it
  std::string runs;        ///< the kernel, or a library's plan
  double ms = 0;           ///< median
  Speedup speedup;         ///< of the row over this base, over turns
  double cached_ms = 0;    ///< on a GPU with operands in its second-level cache; 0: not measured
  Speedup cached_speedup;  ///< likewise
  std::string problem;     ///< why it did not run; else empty
};

/// One variant of one convolution.
struct ConvRow {
  ConvPoint point;                        ///< the layer
  Precision precision = Precision::fp32;  ///< what it computes in
  std::string backend;                    ///< the requested kernel; "auto": the fastest
  std::string problem;                    ///< why it did not run; else empty, and what follows is set
  std::string runs;                       ///< the kernel that ran
  SweptTimes times;                       ///< of a run
  double cached_ms = 0;                   ///< as ConvBase
  double floor_ms = 0;                    ///< the least possible time; 0: not requested
  std::string binds;                      ///< what sets that limit
  std::vector<ConvBase> against;          ///< every base but itself
  double mae = 0;                         ///< mean error, against sums in double precision at 256 pixels
  double max_error = 0;                   ///< the largest one
  double relative_l2 = 0;                 ///< norm of the errors over that of the results
  std::int64_t bytes = 0;                 ///< of input, weights and output, the least traffic
  std::int64_t arena_bytes = 0;           ///< of output and scratch memory

  /// Null if it was not measured against that base.
  PIPIT_API const ConvBase* find(std::string_view base) const;
};

/// The mean speedup of some rows.
struct GeometricMean {
  std::size_t rows = 0;  ///< number of rows
  double mean = 0;       ///< 0 without rows
  /// Lower end of the 95 % interval for the population of layers of which these are a sample (Student's t, of
  /// logarithms). 0 with fewer than two rows.
  double low = 0;
  double high = 0;  ///< of that interval
};

/// The rows of one precision and kernel against one base.
struct ConvSummary {
  Precision precision = Precision::fp32;  ///< of the rows
  std::string backend;                    ///< of the rows
  std::string base;                       ///< what the rows are compared with
  std::size_t problems = 0;               ///< rows where either did not run
  GeometricMean all;                      ///< of all speed-ups
  GeometricMean cached;                   ///< on a GPU, with operands in its second-level cache
  GeometricMean share_of_limit;           ///< of floors in times, if there are floors
  std::size_t faster = 0;                 ///< rows whose whole interval is more than 1 % above 1
  std::size_t slower = 0;                 ///< or more than 1 % below
  /// The rows of one value of an extent.
  struct Part {
    std::string extent;      ///< "n", "in", "out", "size", "kernel" or "stride"
    std::int64_t value = 0;  ///< of that
    GeometricMean mean;      ///< of their speed-ups
  };
  std::vector<Part> parts;    ///< by each extent that has more than one value, in its order
  std::vector<ConvRow> best;  ///< for each image size, the row with the largest lower bound of its speedup
};

/// The convolutions to sweep, and how.
struct ConvSweepOptions {
  SweepRun run{.seconds = 0.04};  ///< where, for how long, and where rows go
  ConvGrid grid = {};             ///< the layers
  std::size_t sample = 0;         ///< number of layers drawn at random; 0: all
  unsigned seed = 1;              ///< of the sample; a larger sample contains a smaller one
  std::vector<Precision> precisions{Precision::int8};  ///< of fp32, fp16, bf16, int8
  std::vector<std::string> backends{"auto"};           ///< kernels by name; "auto": the fastest of all
  /// What rows are compared with: names of precisions, each with its fastest kernel; on a GPU also "cudnn" (as
  /// frameworks call it) and "cudnn-best". Empty: fp32, on a GPU fp16.
  std::vector<std::string> bases = {};
  bool floor = false;  ///< also the least possible time of each row, from this machine's ceilings
  std::function<void(const ConvRow& row)> row = {};  ///< called with each row that is measured. May be empty.
};

/// Where the time of a sweep went, in seconds.
struct ConvSweepSeconds {
  double inputs = 0;   ///< making layers, their inputs and references
  double plans = 0;    ///< building a library's plans
  double kernels = 0;  ///< choosing kernels by their times
  double turns = 0;    ///< timing what was chosen
  double errors = 0;   ///< running the chosen kernels for their results
};

/// What sweep_convolutions() found.
struct ConvSweep {
  std::string device;                  ///< the CPU or GPU
  int threads = 0;                     ///< of a run
  std::vector<std::string> bases;      ///< what rows are compared with, none twice
  std::vector<ConvRow> rows;           ///< all requested rows, including those read from `results`
  std::vector<ConvSummary> summaries;  ///< a precision's fastest kernel has none against itself
  bool failed = false;                 ///< a row failed for a reason other than a missing kernel
  ConvSweepSeconds seconds;            ///< of what was measured now
  std::string json;                    ///< all of it, as `pipit sweep conv --json` writes it (docs/json.md)
};

/// Times single convolutions on pseudo-random data, always the same, in NHWC: for each layer all requested variants and
/// every base run in turns. A variant or base that does not run has the reason in its row. Throws Error if there is no
/// such device or base, and for SweepRun::results that cannot be written or belong to another sweep; ArgumentError for
/// invalid options. May be called from any thread, but sweeps that run at the same time disturb each other's times.
PIPIT_API ConvSweep sweep_convolutions(const ConvSweepOptions& options);

/// What is removed from a layer together.
enum class SparsityMode : std::uint8_t {
  k,            ///< rows of K, of the im2col product, for all outputs
  k_panel,      ///< rows of K, separately for every panel of outputs
  channel,      ///< outputs
  block,        ///< blocks of outputs
  input,        ///< input channels
  input_panel,  ///< input channels, separately for every panel
};

/// "k", "k-panel", "channel", "block", "input" or "input-panel".
PIPIT_API std::string_view sparsity_mode_name(SparsityMode mode);

/// The distance of results from those of the dense layer in fp32.
struct OutputError {
  double mae = 0;          ///< mean difference
  double max = 0;          ///< the largest one
  double relative_l2 = 0;  ///< norm of the differences over that of the results
  double top10 = 0;        ///< share of the ten largest outputs of a pixel that stay among the ten largest
};

/// One variant of one layer.
struct SparsityRow {
  std::string layer;  ///< its name in the model, or what SparsitySweepOptions::layers says
  Precision precision = Precision::fp32;  ///< what it computes in
  std::optional<SparsityMode> mode;       ///< what was removed; unset: nothing, the dense layer
  double keep = 1;                        ///< the requested share
  std::string problem;                    ///< why it did not run; else empty, and what follows is set
  double kept = 1;                        ///< share of the multiply-accumulates that is left
  std::string kernel;                     ///< what ran it
  std::string dense_kernel;               ///< what ran the dense layer
  SweptTimes times;                       ///< of a run
  double dense_ms = 0;                    ///< median of the dense layer
  Speedup speedup;                        ///< over the dense layer, over turns
  OutputError error;                      ///< with the kept weights unchanged
  std::optional<OutputError> refit;       ///< with refitted weights, for modes that support this
};

/// The layers to sweep, and how.
struct SparsitySweepOptions {
  SweepRun run{.seconds = 0.5};  ///< where, for how long, and where rows go
  /// A model whose convolutions of one group and at least 8 input channels are swept. Empty: `layers` are swept.
  std::string model = {};
  LoadOptions load = {};  ///< how `model` is read
  /// "NxCxHxW:OxRxS", then ":sSTRIDE", ":pPADDING" and ":dDILATION" as needed: convolutions with random weights, always
  /// the same. Empty: two that are typical of convolutional networks.
  std::vector<std::string> layers = {};
  std::vector<Precision> precisions{Precision::fp32};  ///< of fp32, fp16, bf16, int8
  std::vector<SparsityMode> modes{SparsityMode::k,       SparsityMode::k_panel,
                                  SparsityMode::channel, SparsityMode::block,
                                  SparsityMode::input,   SparsityMode::input_panel};  ///< all
  std::vector<double> keeps{1,   0.85, 0.75, 0.65,
                            0.5, 0.35, 0.25};        ///< shares, from 0.05 to 1; 1: the dense layer
  Importance importance = Importance::second_order;  ///< how losses are estimated; for outputs only l1 or l2
  /// Neighbouring input channels in a row of K, also for SparsityMode::input_panel. 0: the number that a kernel leaves
  /// out together.
  std::int64_t group = 0;
  std::optional<std::int64_t>
      panel;                ///< outputs that share rows; unset: those that this CPU computes together
  std::int64_t block = 16;  ///< outputs of a block
  bool refit = true;        ///< also fit the kept weights and compare again
  std::function<void(const SparsityRow& row)> row =
      {};  ///< called with each row that is measured. May be empty.
};

/// What sweep_sparsity() found.
struct SparsitySweep {
  std::string device;             ///< the CPU or GPU
  int threads = 0;                ///< of a run
  std::vector<SparsityRow> rows;  ///< all requested rows, including those read from `results`
  bool failed = false;            ///< as ConvSweep
  std::string json;               ///< all of it, as `pipit sweep sparsity --json` writes it (docs/json.md)
};

/// Throws ArgumentError, naming the part, for text that SparsitySweepOptions::layers does not take, and for layers of
/// more than 2^31 elements.
PIPIT_API void check_layer(const std::string& layer);

/// Times single layers, in NHWC and without activation, with all weights and with those that a mode and a share keep,
/// in turns, and compares their results. Throws as sweep_convolutions() does, what CompiledModel does for a model that
/// cannot be read, and UnsupportedError for a model without such convolutions or already in INT8. May be called from
/// any thread, but sweeps that run at the same time disturb each other's times.
PIPIT_API SparsitySweep sweep_sparsity(const SparsitySweepOptions& options);

/// Reads a file with ConvSweep::json or SparsitySweep::json for the last argument of report(), a profile's page: checks
/// its rows and computes summaries anew. (The page or CSV of the sweep alone is made from the file's own text.) Throws
/// Error, beginning with the path, for other files and other versions.
PIPIT_API std::string read_sweep_document(const std::filesystem::path& file);

}  // namespace pipit::tools
