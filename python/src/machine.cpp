// Ceilings of the machine, named models, and points of plots.
#include "python/src/fields.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

using namespace tools;

void bind_ceilings(nb::module_& module) {
  OptionFields<CeilingsOptions>(module, "CeilingsOptions", "pipit::tools::CeilingsOptions")
      .field("device", &CeilingsOptions::device, &DeviceOptions::kind)
      .field("threads", &CeilingsOptions::device, &DeviceOptions::threads)
      .field("kept", &CeilingsOptions::kept);
  ResultFields<Rate>(module, "Rate", "How often per second something is done, measured in several rounds.")
      .field("best", &Rate::best, "the fastest round; floors use it")
      .field("median", &Rate::median, "of the rounds")
      .field("p10", &Rate::p10, "one round in ten was slower")
      .field("rounds", &Rate::rounds, "0: not measured");
  ResultFields<ArithmeticCeiling>(module, "ArithmeticCeiling",
                                  "Multiply-accumulates of one kind on one kind of unit.")
      .field("products", &ArithmeticCeiling::products, "'fp32', 'fp16', 'bf16', 'int8' or 'int16'")
      .field("unit", &ArithmeticCeiling::unit, "an instruction set, or 'tensor cores'")
      .field("flops", &ArithmeticCeiling::flops,
             "operations per second, two for each multiply-accumulate; operands in registers")
      .field("tile", &ArithmeticCeiling::tile,
             "on a CPU: of the convolution tile with operands in the first-level cache");
  ResultFields<MemoryCeiling>(module, "MemoryCeiling",
                              "One level of memory. Rates in bytes per second, read and written together.")
      .field("name", &MemoryCeiling::name, "'L1', 'L2', 'L3', 'memory'")
      .field("bytes", &MemoryCeiling::bytes, "available to all threads together; 0: unlimited")
      .field("read", &MemoryCeiling::read, "reading only")
      .field("write", &MemoryCeiling::write, "writing only")
      .field("copy", &MemoryCeiling::copy, "one byte read for each that is written")
      .field("add", &MemoryCeiling::add, "two bytes read for each that is written");
  ResultFields<MachineCeilings>(module, "MachineCeilings", "The ceilings of one device.")
      .field("device", &MachineCeilings::device, "the measured device")
      .field("machine", &MachineCeilings::machine, "what the rates depend on")
      .field("threads", &MachineCeilings::threads, "of a CPU")
      .field("measured_at", &MachineCeilings::measured_at, "UTC, '2026-11-23T12:30:00Z'")
      .field("seconds", &MachineCeilings::seconds, "duration of the measurement")
      .field("arithmetic", &MachineCeilings::arithmetic, "for all kinds that the device supports")
      .field("memory", &MachineCeilings::memory, "nearest first")
      .field("launches", &MachineCeilings::launches, "on a GPU: consecutive kernels without work")
      .field("synchronizations", &MachineCeilings::synchronizations,
             "on a GPU: how often the host can launch a kernel and wait for its end")
      .field("spread", &MachineCeilings::spread,
             "the largest spread of rates that floors use; above 0.15 the machine was busy");
  ResultFields<CeilingsResult>(module, "Ceilings", "What ceilings() measured or read.")
      .field("ceilings", &CeilingsResult::ceilings, "the rates")
      .field("days", &CeilingsResult::days, "their age")
      .field("kept_days", &CeilingsResult::kept_days, "days after which they are measured again")
      .field("file", &CeilingsResult::file, "that stores them; empty without a cache folder")
      .field("notes", &CeilingsResult::notes, "notes for the user")
      .field("json", &CeilingsResult::json, "all of it, as the command's --json writes it");
}

void bind_models(nb::module_& module) {
  ResultFields<NamedModel>(module, "NamedModel", "A model that has a name.")
      .field("name", &NamedModel::name, "accepted as a model by every function")
      .field("description", &NamedModel::description, "one sentence")
      .field("weights", &NamedModel::weights, "'built-in', 'random' or 'fetched'")
      .field("side", &NamedModel::side, "of its square input, in pixels")
      .field("classes", &NamedModel::classes, "of its output")
      .field("parameters", &NamedModel::parameters, "trained parameters, without running statistics")
      .field("top1", &NamedModel::top1, "accuracy in percent; 0: none, or not known")
      .field("top5", &NamedModel::top5, "likewise")
      .field("measured_on", &NamedModel::measured_on, "the images of these accuracies")
      .field("licence", &NamedModel::licence, "of the weights")
      .field("source", &NamedModel::source, "of the weights");
  ResultFields<ListedModel>(module, "ListedModel", "A model that has a name, and whether it can be used.")
      .field("model", &ListedModel::model, "what it is")
      .field("is_here", &ListedModel::is_here, "it can be used")
      .field("problem", &ListedModel::problem, "with the file of a fetched model; else empty")
      .field("repairs", &ListedModel::repairs, "fetch() replaces that file")
      .field("path", &ListedModel::path, "of the file, which may not exist yet; empty for others");
  ResultFields<ModelList>(module, "ModelList", "What models() found.")
      .field("models", &ModelList::models, "in the order of the command")
      .field("json", &ModelList::json, "all of it, as the command's --json writes it");
  ResultFields<FetchedModel>(module, "FetchedModel", "A model that fetch() made available.")
      .field("name", &FetchedModel::name, "as given")
      .field("path", &FetchedModel::path, "its ONNX file")
      .field("bytes", &FetchedModel::bytes, "of the file")
      .field("fetched", &FetchedModel::fetched, "it was downloaded by this call");
  ResultFields<FetchResult>(module, "FetchResult", "What fetch() made available.")
      .field("models", &FetchResult::models, "in the order of their names")
      .field("json", &FetchResult::json, "all of it, as the command's --json writes it");
}

}  // namespace

void bind_machine(nb::module_& module) {
  bind_ceilings(module);
  bind_models(module);
  OptionFields<ParetoPoint>(module, "ParetoPoint", "pipit::tools::ParetoPoint")
      .field("ms", &ParetoPoint::ms)
      .field("accuracy", &ParetoPoint::accuracy)
      .field("label", &ParetoPoint::label)
      .field("pareto", &ParetoPoint::pareto)
      .field("chosen", &ParetoPoint::chosen)
      .field("front", &ParetoPoint::front);
}

}  // namespace pipit::internal::python
