// Options and results of sweeps over single layers.
#include "python/src/fields.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

using namespace tools;

void bind_sweep_options(nb::module_& module) {
  OptionFields<SweepRun>(module, "SweepRun", "pipit::tools::SweepRun")
      .field("device", &SweepRun::device, &DeviceOptions::kind)
      .field("threads", &SweepRun::device, &DeviceOptions::threads)
      .field("seconds", &SweepRun::seconds)
      .field("results", &SweepRun::results)
      .field("resume", &SweepRun::resume);
  OptionFields<ConvGrid>(module, "ConvGrid", "pipit::tools::ConvGrid")
      .field("batch", &ConvGrid::batch)
      .field("in_channels", &ConvGrid::in)
      .field("out_channels", &ConvGrid::out)
      .field("size", &ConvGrid::size)
      .field("kernel", &ConvGrid::kernel)
      .field("stride", &ConvGrid::stride)
      .field("all", &ConvGrid::all);
  OptionFields<ConvSweepOptions>(module, "ConvSweepOptions", "pipit::tools::ConvSweepOptions")
      .field("run", &ConvSweepOptions::run)
      .field("grid", &ConvSweepOptions::grid)
      .field("sample", &ConvSweepOptions::sample)
      .field("seed", &ConvSweepOptions::seed)
      .field("precisions", &ConvSweepOptions::precisions)
      .field("backends", &ConvSweepOptions::backends)
      .field("bases", &ConvSweepOptions::bases)
      .field("floor", &ConvSweepOptions::floor);
  OptionFields<SparsitySweepOptions>(module, "SparsitySweepOptions", "pipit::tools::SparsitySweepOptions")
      .field("run", &SparsitySweepOptions::run)
      .field("model", &SparsitySweepOptions::model)
      .field("load", &SparsitySweepOptions::load)
      .field("layers", &SparsitySweepOptions::layers)
      .field("precisions", &SparsitySweepOptions::precisions)
      .field("modes", &SparsitySweepOptions::modes)
      .field("keeps", &SparsitySweepOptions::keeps)
      .field("importance", &SparsitySweepOptions::importance)
      .field("group", &SparsitySweepOptions::group)
      .field("panel", &SparsitySweepOptions::panel)
      .field("block", &SparsitySweepOptions::block)
      .field("refit", &SparsitySweepOptions::refit);
}

void bind_rows(nb::module_& module) {
  ResultFields<SweptTimes>(module, "SweptTimes", "The times of a run that took turns with others.")
      .field("ms", &SweptTimes::ms, "median")
      .field("low_ms", &SweptTimes::low_ms, "first quartile")
      .field("high_ms", &SweptTimes::high_ms, "third quartile")
      .field("turns", &SweptTimes::turns, "how often it ran")
      .field("samples_ms", &SweptTimes::samples_ms, "medians of up to 60 parts of the turns, in their order");
  ResultFields<ConvPoint>(module, "ConvPoint", "A square convolution with a bias, padded by kernel // 2.")
      .field("batch", &ConvPoint::batch, "images")
      .field("in_channels", &ConvPoint::in, "input channels")
      .field("out_channels", &ConvPoint::out, "output channels")
      .field("size", &ConvPoint::size, "height and width of the images")
      .field("kernel", &ConvPoint::kernel, "height and width of the window")
      .field("stride", &ConvPoint::stride, "in both directions");
  ResultFields<ConvBase>(module, "ConvBase", "A baseline that a row of convolutions is compared with.")
      .field("base", &ConvBase::base, "as the option bases names it")
      .field("runs", &ConvBase::runs, "the kernel, or a library's plan")
      .field("ms", &ConvBase::ms, "median")
      .field("speedup", &ConvBase::speedup, "of the row over this base, over turns")
      .field("cached_ms", &ConvBase::cached_ms, "on a GPU with operands in its second-level cache")
      .field("cached_speedup", &ConvBase::cached_speedup, "likewise")
      .field("problem", &ConvBase::problem, "why it did not run; else empty");
  ResultFields<ConvRow>(module, "ConvRow", "One variant of one convolution.")
      .field("point", &ConvRow::point, "the layer")
      .field("precision", &ConvRow::precision, "what it computes in")
      .field("backend", &ConvRow::backend, "the requested kernel; 'auto': the fastest")
      .field("problem", &ConvRow::problem, "why it did not run; else empty")
      .field("runs", &ConvRow::runs, "the kernel that ran")
      .field("times", &ConvRow::times, "of a run")
      .field("cached_ms", &ConvRow::cached_ms, "on a GPU with operands in its second-level cache")
      .field("floor_ms", &ConvRow::floor_ms, "the least possible time; 0: not requested")
      .field("binds", &ConvRow::binds, "what sets that limit")
      .field("against", &ConvRow::against, "every base but itself")
      .field("mae", &ConvRow::mae, "mean error, against sums in double precision at 256 pixels")
      .field("max_error", &ConvRow::max_error, "the largest one")
      .field("relative_l2", &ConvRow::relative_l2, "norm of the errors over that of the results")
      .field("bytes", &ConvRow::bytes, "of input, weights and output, the least traffic")
      .field("arena_bytes", &ConvRow::arena_bytes, "of output and scratch memory");
  ResultFields<OutputError>(module, "OutputError", "The distance of results from those of the dense layer.")
      .field("mae", &OutputError::mae, "mean difference")
      .field("max", &OutputError::max, "the largest one")
      .field("relative_l2", &OutputError::relative_l2, "norm of the differences over that of the results")
      .field("top10", &OutputError::top10,
             "share of the ten largest outputs of a pixel that stay among the ten largest");
  ResultFields<SparsityRow>(module, "SparsityRow", "One variant of one layer.")
      .field("layer", &SparsityRow::layer, "its name in the model, or as the option layers says it")
      .field("precision", &SparsityRow::precision, "what it computes in")
      .field("mode", &SparsityRow::mode, "what was removed; None: nothing, the dense layer")
      .field("keep", &SparsityRow::keep, "the requested share")
      .field("problem", &SparsityRow::problem, "why it did not run; else empty")
      .field("kept", &SparsityRow::kept, "share of the multiply-accumulates that is left")
      .field("kernel", &SparsityRow::kernel, "what ran it")
      .field("dense_kernel", &SparsityRow::dense_kernel, "what ran the dense layer")
      .field("times", &SparsityRow::times, "of a run")
      .field("dense_ms", &SparsityRow::dense_ms, "median of the dense layer")
      .field("speedup", &SparsityRow::speedup, "over the dense layer, over turns")
      .field("error", &SparsityRow::error, "with the kept weights unchanged")
      .field("refit", &SparsityRow::refit, "with refitted weights, for modes that support this");
}

void bind_sums(nb::module_& module) {
  ResultFields<GeometricMean>(module, "GeometricMean", "The mean speedup of some rows.")
      .field("rows", &GeometricMean::rows, "number of rows")
      .field("mean", &GeometricMean::mean, "0 without rows")
      .field("low", &GeometricMean::low, "of its 95 % interval; 0 with fewer than two rows")
      .field("high", &GeometricMean::high, "of that interval");
  ResultFields<ConvSummary::Part>(module, "ConvSummaryPart", "The rows of one value of an extent.")
      .field("extent", &ConvSummary::Part::extent, "'n', 'in', 'out', 'size', 'kernel' or 'stride'")
      .field("value", &ConvSummary::Part::value, "of that")
      .field("mean", &ConvSummary::Part::mean, "of their speedups");
  ResultFields<ConvSummary>(module, "ConvSummary", "The rows of one precision and kernel against one base.")
      .field("precision", &ConvSummary::precision, "of the rows")
      .field("backend", &ConvSummary::backend, "of the rows")
      .field("base", &ConvSummary::base, "what the rows are compared with")
      .field("problems", &ConvSummary::problems, "rows where either did not run")
      .field("all", &ConvSummary::all, "of all speedups")
      .field("cached", &ConvSummary::cached, "on a GPU with operands in its second-level cache")
      .field("share_of_limit", &ConvSummary::share_of_limit, "of floors in times, if there are floors")
      .field("faster", &ConvSummary::faster, "rows whose whole interval is more than 1 % above 1")
      .field("slower", &ConvSummary::slower, "or more than 1 % below")
      .field("parts", &ConvSummary::parts, "by each extent that has more than one value")
      .field("best", &ConvSummary::best, "for each image size, the row with the largest lower bound");
}

void bind_sweep(nb::module_& module) {
  ResultFields<ConvSweepSeconds>(module, "ConvSweepSeconds", "Where the time of a sweep went, in seconds.")
      .field("inputs", &ConvSweepSeconds::inputs, "making layers, their inputs and references")
      .field("plans", &ConvSweepSeconds::plans, "building a library's plans")
      .field("kernels", &ConvSweepSeconds::kernels, "choosing kernels by their times")
      .field("turns", &ConvSweepSeconds::turns, "timing what was chosen")
      .field("errors", &ConvSweepSeconds::errors, "running the chosen kernels for their results");
  ResultFields<ConvSweep>(module, "ConvSweep", "What sweep_convolutions() found.")
      .saved()
      .shown()
      .field("device", &ConvSweep::device, "the CPU or GPU")
      .field("threads", &ConvSweep::threads, "of a run")
      .field("bases", &ConvSweep::bases, "what rows are compared with, none twice")
      .field("rows", &ConvSweep::rows, "all requested rows, including those read from the file of results")
      .field("summaries", &ConvSweep::summaries, "a precision's fastest kernel has none against itself")
      .field("failed", &ConvSweep::failed, "a row failed for a reason other than a missing kernel")
      .field("seconds", &ConvSweep::seconds, "of what was measured now")
      .field("json", &ConvSweep::json, "all of it, as the command's --json writes it");
  ResultFields<SparsitySweep>(module, "SparsitySweep", "What sweep_sparsity() found.")
      .saved()
      .shown()
      .pareto()
      .field("device", &SparsitySweep::device, "the CPU or GPU")
      .field("threads", &SparsitySweep::threads, "of a run")
      .field("rows", &SparsitySweep::rows,
             "all requested rows, including those read from the file of results")
      .field("failed", &SparsitySweep::failed, "a row failed for a reason other than a missing kernel")
      .field("json", &SparsitySweep::json, "all of it, as the command's --json writes it");
}

}  // namespace

void bind_sweeps(nb::module_& module) {
  bind_sweep_options(module);
  bind_rows(module);
  bind_sums(module);
  bind_sweep(module);
}

}  // namespace pipit::internal::python
