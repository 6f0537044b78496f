#include "models/onnx/read/importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <unordered_set>

#include "layers/ops/reshaping.h"
#include "models/onnx/read/input_shapes.h"
#include "models/onnx/read/node_order.h"
#include "models/onnx/read/operators.h"

namespace pipit::internal::onnx {

namespace {

constexpr std::int64_t kFirstIrVersion = 3;
constexpr std::int64_t kLastIrVersion = 14;

// Names end up in one-line messages and in files.
void check_name(const std::string& name, const char* what) {
  const auto is_control = [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; };
  if (std::any_of(name.begin(), name.end(), is_control)) fail("the name of {} has control characters", what);
}

// What is not supported, and everything that it holds for.
struct Refusal {
  std::string reason;
  std::vector<std::string> where;

  // The first place in full, as many others by name as a line takes.
  std::string text() const {
    constexpr std::size_t kMaxNames = 3;
    std::string line = fmt::format("{}: {}", where[0], reason);
    if (where.size() == 1) return line;
    line += fmt::format(" (and {} more:", where.size() - 1);
    for (std::size_t i = 1; i < std::min(where.size(), 1 + kMaxNames); ++i)
      line += fmt::format("{} {}", i == 1 ? "" : ",", where[i].substr(0, where[i].find("' (") + 1));
    return line + (where.size() > 1 + kMaxNames ? ", ...)" : ")");
  }
};

class Importer {
 public:
  Importer(ParsedModel model, const std::filesystem::path& folder, const OnnxOptions& options)
      : model_(std::move(model.proto)),
        raw_(std::move(model.raw)),
        options_(options),
        context_{options, Emitter(options.max_folded_bytes), ExternalData{.folder = folder}, {}, false} {}

  OnnxModel run() {
    check_header();
    check_names();
    add_initializers();
    const InputShapes shapes = add_inputs();
    const FlatNodes flat = inline_functions(model_, result_.opset);
    std::vector<std::string> outputs;
    for (const auto& output : model_.graph().output()) {
      if (output.name().empty()) fail("a graph output has no name");
      outputs.push_back(output.name());
    }
    if (outputs.empty()) fail("the graph has no outputs");
    std::unordered_set<std::string> available;
    for (const auto& [name, id] : values_) available.insert(name);
    const std::vector<std::size_t> order = execution_order(flat.nodes, available, outputs);
    wanted_.insert(outputs.begin(), outputs.end());
    for (const std::size_t n : order) {
      const auto& inputs = flat.nodes[n].proto->input();
      wanted_.insert(inputs.begin(), inputs.begin() + inputs_needed(flat.nodes[n]));
    }
    for (const std::size_t n : order) convert(flat.nodes[n]);
    refuse_unsupported();
    shapes.refuse_open();
    add_outputs(outputs);
    tell_widened();
    result_.graph = context_.emitter.builder().build();
    return std::move(result_);
  }

 private:
  // Stands for a value whose producer is not supported.
  static constexpr ValueId kUnknown = -2;
  static constexpr std::int64_t kNotImported = std::numeric_limits<std::int64_t>::min();

  void check_header() {
    if (!model_.has_graph()) fail("the file holds no ONNX graph");
    result_.ir_version = model_.ir_version();
    if (result_.ir_version < kFirstIrVersion || result_.ir_version > kLastIrVersion) {
      fail_unsupported("IR version {}; versions {} to {} are supported", result_.ir_version, kFirstIrVersion,
                       kLastIrVersion);
    }
    result_.opset = default_opset(model_.opset_import(), kNotImported);
    if (result_.opset == kNotImported) {
      if (model_.opset_import_size() == 0) fail("the file does not say which opset it uses");
      fail_unsupported("only operators of domain '{}'; the default domain is supported",
                       model_.opset_import(0).domain());
    }
    if (result_.opset < kFirstOpset || result_.opset > kLastOpset) {
      fail_unsupported(
          "opset {}; opsets {} to {} are supported (re-export the model, or convert it with "
          "onnx.version_converter)",
          result_.opset, kFirstOpset, kLastOpset);
    }
    result_.producer = model_.producer_name();
    if (!model_.producer_version().empty()) result_.producer += " " + model_.producer_version();
    for (const auto& entry : model_.metadata_props()) {
      const bool before_0_1 = entry.key() == "pipit.quantised_range";
      result_.metadata[before_0_1 ? std::string(kQuantizedRangeKey) : entry.key()] = entry.value();
    }
    if (const auto range = result_.metadata.find(std::string(kQuantizedRangeKey));
        range != result_.metadata.end()) {
      if (range->second != kNarrowRange)
        fail("metadata {} is '{}', expected '{}'", kQuantizedRangeKey, range->second, kNarrowRange);
      context_.narrow_range = true;
    }
  }

  void check_names() const {
    const auto check_node = [](const onnx_pb::NodeProto& node) {
      check_name(node.name(), "a node");
      check_name(node.op_type(), "an operator");
      check_name(node.domain(), "an operator domain");
      for (const std::string& name : node.input()) check_name(name, "a node input");
      for (const std::string& name : node.output()) check_name(name, "a node output");
      for (const auto& attribute : node.attribute()) check_name(attribute.name(), "an attribute");
    };
    for (const auto& node : model_.graph().node()) check_node(node);
    for (const auto& function : model_.functions()) {
      check_name(function.name(), "a function");
      for (const std::string& name : function.input()) check_name(name, "a function input");
      for (const std::string& name : function.output()) check_name(name, "a function output");
      for (const auto& node : function.node()) check_node(node);
    }
    for (const auto& input : model_.graph().input()) check_name(input.name(), "a graph input");
    for (const auto& output : model_.graph().output()) check_name(output.name(), "a graph output");
    for (const auto& tensor : model_.graph().initializer()) check_name(tensor.name(), "an initializer");
  }

  // Runs `body`; an UnsupportedError is collected under `where`, an Error is thrown with `where` before it.
  // True when it succeeded.
  template <typename Body>
  bool attempt(const std::string& where, Body&& body) {
    try {
      body();
      return true;
    } catch (const UnsupportedError& e) {
      refuse(where, e.what());
    } catch (const Error& e) {
      fail("{}: {}", where, e.what());
    }
    return false;
  }

  void define(const std::string& name, ValueId id, const char* what) {
    if (name.empty()) fail("{} has no name", what);
    if (!values_.emplace(name, id).second) fail("{} '{}' is defined twice", what, name);
  }

  void add_initializers() {
    auto raw = raw_.begin();
    for (onnx_pb::TensorProto& proto : *model_.mutable_graph()->mutable_initializer()) {
      ValueId id = kUnknown;
      const RawData* payload = *raw ? &**raw : nullptr;
      ++raw;
      attempt(fmt::format("initializer '{}'", proto.name()), [&] {
        id = context_.emitter.constant(proto.name(), tensor_from_onnx(proto, context_.external, payload));
        widened_initializers_ += is_widened(proto.data_type()) ? 1 : 0;
      });
      define(proto.name(), id, "initializer");
      onnx_pb::TensorProto().Swap(&proto);  // Clear() would keep the memory
    }
    raw_.clear();  // the file is closed
    for (const auto& sparse : model_.graph().sparse_initializer()) {
      check_name(sparse.values().name(), "an initializer");
      define(sparse.values().name(), kUnknown, "sparse initializer");
      refuse(fmt::format("sparse initializer '{}'", sparse.values().name()), "sparse tensors");
    }
  }

  InputShapes add_inputs() {
    if (options_.batch < 1) fail("batch {} must be at least 1", options_.batch);
    std::unordered_set<std::string> names;
    std::vector<const onnx_pb::ValueInfoProto*> inputs;
    for (const auto& input : model_.graph().input()) {
      if (!names.insert(input.name()).second) fail("graph input '{}' is defined twice", input.name());
      // Before IR version 4 every initializer was listed as an input too.
      if (values_.contains(input.name())) continue;
      for (const auto& dim : input.type().tensor_type().shape().dim())
        check_name(dim.dim_param(), "a dimension");
      inputs.push_back(&input);
    }
    InputShapes shapes(inputs, options_);
    const std::unordered_set<std::string> kept = kept_inputs();
    for (const auto* input : inputs) {
      ValueId id = kUnknown;
      attempt(fmt::format("input '{}'", input->name()), [&] {
        const std::optional<Shape> shape = shapes.resolve(*input);
        const std::int32_t type = input->type().tensor_type().elem_type();
        const TensorDesc desc{shape.value_or(Shape{}), dtype_from_onnx(type)};
        if (!shape) return;
        const Tensor* frozen = kept.contains(input->name()) ? nullptr : value_given(input->name(), desc);
        if (frozen != nullptr) {
          id = context_.emitter.constant(input->name(), frozen->clone());
          result_.frozen.push_back(input->name());
          return;
        }
        id = context_.emitter.builder().add_input(input->name(), desc);
        context_.inputs.emplace(id, nullptr);
        if (is_widened(type)) widened_.push_back(fmt::format("input '{}'", input->name()));
      });
      define(input->name(), id, "graph input");
    }
    result_.symbolic_batch = shapes.symbolic_batch();
    return shapes;
  }

  // The graph inputs that stay inputs with freeze_operands: what some node reads first, or what is an output as well.
  std::unordered_set<std::string> kept_inputs() const {
    std::unordered_set<std::string> names;
    for (const auto& node : model_.graph().node()) {
      if (node.input_size() > 0) names.insert(node.input(0));
    }
    for (const auto& output : model_.graph().output()) names.insert(output.name());
    return names;
  }

  // The value of an input that freeze_operands is about; null where there is none.
  const Tensor* value_given(const std::string& name, const TensorDesc& desc) const {
    if (!options_.freeze_operands || !options_.bind_input) return nullptr;
    const Tensor* given = options_.bind_input(name);
    return given != nullptr && given->desc() == desc ? given : nullptr;
  }

  void convert(const FlatNode& node) {
    const bool converted = attempt(describe(node), [&] {
      const Operator& op = find_operator(node);
      std::vector<ValueId> inputs;
      const int needed = inputs_needed(node);
      for (int i = 0; i < node.proto->input_size(); ++i) {
        const std::string& name = node.proto->input(i);
        inputs.push_back(i >= needed || name.empty() ? kNoValue : values_.at(name));
      }
      // Only root causes are reported.
      const bool known = std::find(inputs.begin(), inputs.end(), kUnknown) == inputs.end();
      define_outputs(node, known ? run_converter(op, node, std::move(inputs)) : std::vector<ValueId>{});
    });
    if (!converted) define_outputs(node, {});
  }

  std::vector<ValueId> run_converter(const Operator& op, const FlatNode& node, std::vector<ValueId> inputs) {
    std::vector<bool> wanted;
    for (const std::string& name : node.proto->output()) {
      wanted.push_back(!name.empty() && wanted_.contains(name));
    }
    const std::vector<ValueId> old = inputs;
    NodeContext context(context_, node, std::move(inputs), wanted);
    std::vector<ValueId> outputs = op.convert(context);
    context.attributes().check_all_read();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i]) continue;
      if (i >= outputs.size()) fail_unsupported("output {} is not supported", i);
      // A value that the node passes on keeps the name it has.
      if (std::find(old.begin(), old.end(), outputs[i]) == old.end()) {
        context_.emitter.builder().rename(outputs[i], node.proto->output(static_cast<int>(i)));
      }
    }
    return outputs;
  }

  void define_outputs(const FlatNode& node, const std::vector<ValueId>& ids) {
    for (int i = 0; i < node.proto->output_size(); ++i) {
      const std::string& name = node.proto->output(i);
      const auto index = static_cast<std::size_t>(i);
      if (!name.empty()) values_.emplace(name, index < ids.size() ? ids[index] : kUnknown);
    }
  }

  static std::string describe(const FlatNode& node) {
    return fmt::format("node '{}' ({}, opset {})", node.name, qualified_operator(*node.proto), node.opset);
  }

  void refuse(const std::string& where, const std::string& reason) {
    const auto [place, is_new] = places_.emplace(reason, unsupported_.size());
    if (is_new) unsupported_.push_back({reason, {}});
    unsupported_[place->second].where.push_back(where);
  }

  void refuse_unsupported() const {
    std::size_t parts = 0;
    std::vector<std::string> lines;
    for (const Refusal& refusal : unsupported_) {
      parts += refusal.where.size();
      lines.push_back(refusal.text());
    }
    if (lines.empty()) return;
    if (lines.size() == 1) fail_unsupported("{}", lines[0]);
    fail_unsupported("{} parts of the model are not supported:\n  {}", parts, fmt::join(lines, "\n  "));
  }

  void tell_widened() {
    for (const auto& output : model_.graph().output()) {
      if (is_widened(output.type().tensor_type().elem_type()))
        widened_.push_back(fmt::format("output '{}'", output.name()));
    }
    if (widened_initializers_ > 0)
      widened_.push_back(
          fmt::format("{} initializer{}", widened_initializers_, widened_initializers_ == 1 ? "" : "s"));
    result_.widened = fmt::format("{}", fmt::join(widened_, ", "));
  }

  void add_outputs(const std::vector<std::string>& outputs) {
    std::unordered_set<std::string> names;
    for (const std::string& name : outputs) {
      if (!names.insert(name).second) fail("graph output '{}' is listed twice", name);
      context_.emitter.builder().mark_output(values_.at(name), name);
    }
  }

  onnx_pb::ModelProto model_;
  std::vector<std::optional<RawData>> raw_;
  const OnnxOptions& options_;
  ImportContext context_;
  std::unordered_map<std::string, ValueId> values_;
  std::unordered_set<std::string> wanted_;  // names that a node or the graph reads
  std::vector<Refusal> unsupported_;
  std::map<std::string, std::size_t> places_;  // in unsupported_, by reason
  std::vector<std::string> widened_;
  std::size_t widened_initializers_ = 0;
  OnnxModel result_;
};

}  // namespace

OnnxModel import_model(ParsedModel model, const std::filesystem::path& folder, const OnnxOptions& options) {
  return Importer(std::move(model), folder, options).run();
}

}  // namespace pipit::internal::onnx
