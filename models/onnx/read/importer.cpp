#include "models/onnx/read/importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <unordered_set>

#include "layers/common/dispatch.h"
#include "layers/ops/binary.h"
#include "layers/ops/operands.h"
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
      line += fmt::format("{} {}", i == 1 ? "" : ",", where[i].substr(0, where[i].find(" (")));
    return line + (where.size() > 1 + kMaxNames ? ", ...)" : ")");
  }
};

class Importer {
 public:
  Importer(ParsedModel model, const std::vector<std::filesystem::path>& folders, const OnnxOptions& options)
      : model_(std::move(model.proto)),
        raw_(std::move(model.raw)),
        options_(options),
        context_{options, Emitter(options.max_folded_bytes), ExternalData{.folders = folders}, {}, {}, {},
                 false} {}

  OnnxModel run() {
    check_header();
    check_names();
    const std::vector<std::string> outputs = output_names();
    FlatNodes flat(model_, result_.opset);
    std::unordered_set<std::string> available = available_names();
    NodeOrder order(flat.nodes(), available, outputs);
    wanted_ = order.names_read(outputs);
    add_initializers();
    const InputShapes shapes = add_inputs();
    Branches branches{flat, order, available, {}};
    while (const std::optional<std::size_t> n = order.next()) {
      const FlatNode node = flat.nodes()[*n];
      if (qualified_operator(*node.proto) != "If") {
        convert(node);
      } else if (!convert_if(*n, node, branches)) {
        continue;  // it comes again
      }
      order.done(*n);
    }
    refuse_unsupported();
    shapes.refuse_open();
    refuse_sequences(outputs);
    add_outputs(in_order(outputs));
    tell_widened();
    result_.graph = context_.emitter.builder().build();
    return std::move(result_);
  }

 private:
  // Stands for a value whose producer is not supported.
  static constexpr ValueId kUnknown = -2;
  static constexpr std::int64_t kNotImported = std::numeric_limits<std::int64_t>::min();

  // An If whose branches have become part of the model: one where the condition is known, else both.
  struct Chosen {
    ValueId condition = kNoValue;
    std::vector<std::vector<std::string>> outputs;  // of each branch
  };
  struct Branches {
    FlatNodes& flat;
    NodeOrder& order;
    std::unordered_set<std::string>& available;
    std::unordered_map<std::size_t, Chosen> chosen;  // by node
  };

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

  static void check_node(const onnx_pb::NodeProto& node) {
    check_name(node.name(), "a node");
    check_name(node.op_type(), "an operator");
    check_name(node.domain(), "an operator domain");
    for (const std::string& name : node.input()) check_name(name, "a node input");
    for (const std::string& name : node.output()) check_name(name, "a node output");
    for (const auto& attribute : node.attribute()) {
      check_name(attribute.name(), "an attribute");
      for (const auto& inner : attribute.g().node()) check_node(inner);
      for (const auto& tensor : attribute.g().initializer()) check_name(tensor.name(), "an initializer");
      for (const auto& output : attribute.g().output()) check_name(output.name(), "an output of a branch");
    }
  }

  void check_names() const {
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
      // What nothing reads may be of any type.
      if (wanted_.contains(proto.name())) id = add_tensor(proto.name(), proto, payload);
      define(proto.name(), id, "initializer");
      onnx_pb::TensorProto().Swap(&proto);  // Clear() would keep the memory
    }
    raw_.clear();  // the file is closed
    for (const auto& sparse : model_.graph().sparse_initializer()) {
      check_name(sparse.values().name(), "an initializer");
      define(sparse.values().name(), kUnknown, "sparse initializer");
      if (wanted_.contains(sparse.values().name()))
        refuse(fmt::format("sparse initializer '{}'", sparse.values().name()), "sparse tensors");
    }
  }

  // kUnknown where it is refused.
  ValueId add_tensor(const std::string& name, const onnx_pb::TensorProto& proto, const RawData* payload) {
    ValueId id = kUnknown;
    attempt(fmt::format("initializer '{}'", name), [&] {
      id = context_.emitter.constant(name, tensor_from_onnx(proto, context_.external, payload));
      widened_initializers_ += is_widened(proto.data_type()) ? 1 : 0;
      context_.note_type(id, proto.data_type());
    });
    return id;
  }

  std::vector<std::string> output_names() const {
    std::vector<std::string> names;
    for (const auto& output : model_.graph().output()) {
      if (output.name().empty()) fail("a graph output has no name");
      names.push_back(output.name());
    }
    if (names.empty()) fail("the graph has no outputs");
    for (const std::string& name : options_.outputs) {
      if (std::ranges::find(names, name) == names.end())
        fail("no graph output has the name '{}'; there are: {}", name, fmt::join(names, ", "));
    }
    return options_.outputs.empty() ? names : options_.outputs;
  }

  std::unordered_set<std::string> available_names() const {
    std::unordered_set<std::string> names;
    for (const auto& tensor : model_.graph().initializer()) names.insert(tensor.name());
    for (const auto& sparse : model_.graph().sparse_initializer()) names.insert(sparse.values().name());
    for (const auto& input : model_.graph().input()) names.insert(input.name());
    return names;
  }

  // Inputs that no node needs are left out, whatever their type, unless they are all that the model has.
  bool is_read(const std::vector<const onnx_pb::ValueInfoProto*>& inputs, const std::string& name) const {
    return wanted_.contains(name) ||
           std::ranges::none_of(inputs, [&](const auto* input) { return wanted_.contains(input->name()); });
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
    const auto image_size = result_.metadata.find("imgsz");
    InputShapes shapes(inputs, options_, image_size == result_.metadata.end() ? "" : image_size->second);
    const std::unordered_set<std::string> kept = kept_inputs();
    check_values(inputs);
    for (const auto* input : inputs) {
      ValueId id = kUnknown;
      if (!is_read(inputs, input->name())) {
        result_.unread.push_back(input->name());
        define(input->name(), id, "graph input");
        continue;
      }
      attempt(fmt::format("input '{}'", input->name()), [&] {
        const std::optional<Shape> shape = shapes.resolve(*input);
        const std::int32_t type = input->type().tensor_type().elem_type();
        const TensorDesc desc{shape.value_or(Shape{}), container_of(type)};
        if (!shape) return;
        if (const std::optional<Tensor> value = value_of(input->name(), desc)) {
          id = context_.emitter.constant(input->name(), value->clone());
          context_.note_type(id, type);
          return;
        }
        const bool decides = desc.shape.rank() == 0 && !is_floating(desc.dtype);  // a switch, a sampling rate
        const Tensor* frozen =
            kept.contains(input->name()) && !decides ? nullptr : value_given(input->name(), desc);
        if (frozen != nullptr) {
          id = context_.emitter.constant(input->name(), frozen->clone());
          result_.frozen.push_back(input->name());
          return;
        }
        id = context_.emitter.builder().add_input(input->name(), desc);
        context_.inputs.emplace(id, nullptr);
        context_.note_type(id, type);
        if (is_widened(type)) widened_.push_back(fmt::format("input '{}'", input->name()));
      });
      define(input->name(), id, "graph input");
    }
    result_.symbolic_batch = shapes.symbolic_batch();
    return shapes;
  }

  void check_values(const std::vector<const onnx_pb::ValueInfoProto*>& inputs) const {
    std::vector<std::string> given;
    for (const auto& [name, value] : options_.values) given.push_back(name);
    for (const auto& [name, value] : options_.arrays) given.push_back(name);
    for (const std::string& name : given) {
      if (std::ranges::any_of(inputs, [&](const auto* input) { return input->name() == name; })) continue;
      std::vector<std::string> names;
      for (const auto* input : inputs) names.push_back(input->name());
      fail("no graph input has the name '{}' (its value is given); there are: {}", name,
           names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
    }
  }

  std::optional<Tensor> value_of(const std::string& name, const TensorDesc& desc) {
    if (const auto array = options_.arrays.find(name); array != options_.arrays.end()) {
      if (!(array->second->desc() == desc))
        fail("{} is given for {}", array->second->desc().str(), desc.str());
      return array->second->clone();
    }
    const auto numbers = options_.values.find(name);
    if (numbers == options_.values.end()) return std::nullopt;
    return tensor_of(numbers->second, desc);
  }

  // One number for all elements, or one for each.
  Tensor tensor_of(const std::vector<double>& numbers, const TensorDesc& desc) {
    if (numbers.size() != 1 && static_cast<std::int64_t>(numbers.size()) != desc.elements())
      fail("{} values are given for {}", numbers.size(), desc.str());
    context_.emitter.charge(desc);
    Tensor tensor(desc);
    with_dtype(desc.dtype, [&]<typename T>(std::type_identity<T>) {
      std::size_t i = 0;
      for (T& element : tensor.values<T>()) {
        const double number = numbers[numbers.size() == 1 ? 0 : i++];
        element = static_cast<T>(number);
        if constexpr (std::is_integral_v<T>) {
          const bool fits = number >= static_cast<double>(std::numeric_limits<T>::min()) &&
                            number <= static_cast<double>(std::numeric_limits<T>::max());
          if (!fits || static_cast<double>(element) != number)
            fail("the value {} is given for {}", number, desc.str());
        }
      }
    });
    return tensor;
  }

  // The graph inputs that stay inputs with freeze_operands: what some node reads first, or what is an output as well.
  std::unordered_set<std::string> kept_inputs() const {
    std::unordered_set<std::string> names;
    add_first_inputs(model_.graph(), names);
    for (const auto& output : model_.graph().output()) names.insert(output.name());
    return names;
  }

  static void add_first_inputs(const onnx_pb::GraphProto& graph, std::unordered_set<std::string>& names) {
    for (const auto& node : graph.node()) {
      if (node.input_size() > 0) names.insert(node.input(0));
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) add_first_inputs(attribute.g(), names);
      }
    }
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
      try {
        define_outputs(node, known ? run_converter(op, node, std::move(inputs)) : std::vector<ValueId>{});
      } catch (const UnsupportedError&) {
        throw;
      } catch (const Error& e) {
        // A branch that is not taken need not fit the inputs.
        if (!undecided_.contains(node.name)) throw;
        fail_unsupported(
            "{} (in a branch of an If whose condition is computed at run time; with --value NAME=VALUE for "
            "the input that decides, only the branch that is taken is read)",
            e.what());
      }
    });
    if (!converted) define_outputs(node, {});
  }

  std::vector<ValueId> run_converter(const Operator& op, const FlatNode& node, std::vector<ValueId> inputs) {
    std::vector<bool> wanted;
    for (const std::string& name : node.proto->output()) {
      wanted.push_back(!name.empty() && wanted_.contains(name));
    }
    const std::vector<ValueId> old = inputs;
    const std::int32_t narrow = context_.narrow_operand(qualified_operator(*node.proto), inputs);
    NodeContext context(context_, node, std::move(inputs), wanted);
    for (std::size_t i = op.takes_sequence ? 1 : 0; i < old.size(); ++i) {
      if (Sequences::contains(old[i]))
        fail_unsupported("input {} is a sequence; those are taken apart by SequenceAt and ConcatFromSequence",
                         i);
    }
    std::vector<ValueId> outputs = op.convert(context);
    context.attributes().check_all_read();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i]) continue;
      if (i >= outputs.size()) fail_unsupported("output {} is not supported", i);
      if (narrow != 0) context_.note_type(outputs[i], narrow);
      // A value that the node passes on keeps the name it has.
      const bool passed_on = std::ranges::any_of(old, [&](ValueId input) {
        return input == outputs[i] || (Sequences::contains(input) &&
                                       std::ranges::count(context_.sequences.at(input), outputs[i]) > 0);
      });
      if (!passed_on && !Sequences::contains(outputs[i])) {
        context_.emitter.builder().rename(outputs[i], node.proto->output(static_cast<int>(i)));
      }
    }
    return outputs;
  }

  // False when the node has to come again, with the values of its branches.
  bool convert_if(std::size_t n, const FlatNode& node, Branches& branches) {
    std::vector<ValueId> outputs;
    const auto found = branches.chosen.find(n);
    bool comes_again = false;
    attempt(describe(node), [&] {
      if (found != branches.chosen.end()) {
        outputs = results_of_if(node, found->second);
      } else {
        comes_again = choose_branches(n, node, branches);
      }
    });
    if (comes_again) return false;
    define_outputs(node, outputs);
    return true;
  }

  // False where the condition is refused.
  bool choose_branches(std::size_t n, const FlatNode& node, Branches& branches) {
    if (node.proto->input_size() != 1) fail("{} inputs, expected 1", node.proto->input_size());
    const ValueId condition = values_.at(node.proto->input(0));
    if (condition == kUnknown) return false;
    if (Sequences::contains(condition)) fail("the condition is a sequence, expected one bool");
    NodeContext context(context_, node, {condition}, {});
    const TensorDesc& desc = context.desc(context.input(0));
    if (desc.dtype != DType::boolean || desc.elements() != 1)
      fail("the condition is {}, expected one bool", desc.str());
    const std::shared_ptr<const Tensor> known = context.known(0);
    const bool undecided = known == nullptr || undecided_.contains(node.name);
    const std::size_t before = branches.flat.nodes().size();
    Chosen chosen{condition, {}};
    std::vector<std::string> results;
    std::vector<InlinedGraph> graphs;
    for (const bool branch : {true, false}) {
      const char* const name = branch ? "then_branch" : "else_branch";
      const onnx_pb::GraphProto* graph = context.attributes().graph(name);
      if (graph == nullptr) fail("attribute '{}' is missing", name);
      if (known != nullptr && known->values<bool>()[0] != branch) continue;
      const InlinedGraph& inlined = graphs.emplace_back(branches.flat.add_branch(n, *graph));
      if (static_cast<int>(inlined.outputs.size()) < node.proto->output_size())
        fail("'{}' has {} outputs, the node {}", name, inlined.outputs.size(), node.proto->output_size());
      for (const auto& [constant, proto] : inlined.constants) branches.available.insert(constant);
      results.insert(results.end(), inlined.outputs.begin(), inlined.outputs.end());
      chosen.outputs.push_back(inlined.outputs);
    }
    for (std::size_t i = before; undecided && i < branches.flat.nodes().size(); ++i)
      undecided_.insert(branches.flat.nodes()[i].name);
    branches.order.wait_for(n, results);
    wanted_.merge(branches.order.names_read(results));
    for (const InlinedGraph& graph : graphs) {
      for (const auto& [constant, proto] : graph.constants)
        define(constant, wanted_.contains(constant) ? add_tensor(constant, *proto, nullptr) : kUnknown,
               "initializer");
    }
    branches.chosen.emplace(n, std::move(chosen));
    return true;
  }

  // What the branch gives, or, where the condition is computed at run time, what Where picks of both.
  std::vector<ValueId> results_of_if(const FlatNode& node, const Chosen& chosen) {
    std::vector<ValueId> results;
    NodeContext context(context_, node, {chosen.condition}, {});
    for (int i = 0; i < node.proto->output_size(); ++i) {
      const auto output = static_cast<std::size_t>(i);
      const ValueId first = values_.at(chosen.outputs[0][output]);
      if (chosen.outputs.size() == 1) {
        results.push_back(first);
        continue;
      }
      const ValueId second = values_.at(chosen.outputs[1][output]);
      if (first == kUnknown || second == kUnknown) {
        results.push_back(kUnknown);
        continue;
      }
      if (Sequences::contains(first) || Sequences::contains(second))
        fail_unsupported("output {} is a sequence, and the condition is computed at run time", i);
      if (!(context.desc(first) == context.desc(second))) {
        fail_unsupported(
            "output {} is {} in one branch and {} in the other, and the condition is computed at run time; a "
            "condition that depends on an input is known where --value NAME=VALUE gives the input",
            i, context.desc(first).str(), context.desc(second).str());
      }
      const ValueId condition = context.emit(std::make_shared<Reshape>(ReshapeAttributes{Shape{}}),
                                             {chosen.condition}, "condition");
      results.push_back(context.emit(std::make_shared<Where>(), {condition, first, second},
                                     i == 0 ? nullptr : fmt::format("{}", i).c_str()));
      context_.emitter.builder().rename(results.back(), node.proto->output(i));
    }
    return results;
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

  void refuse_sequences(const std::vector<std::string>& outputs) const {
    for (const std::string& name : outputs) {
      if (Sequences::contains(values_.at(name)))
        fail_unsupported("output '{}' is a sequence; tensors are supported", name);
    }
  }

  void tell_widened() {
    for (const auto& output : model_.graph().output()) {
      if (wanted_.contains(output.name()) && is_widened(output.type().tensor_type().elem_type()))
        widened_.push_back(fmt::format("output '{}'", output.name()));
    }
    if (widened_initializers_ > 0)
      widened_.push_back(
          fmt::format("{} initializer{}", widened_initializers_, widened_initializers_ == 1 ? "" : "s"));
    result_.widened = fmt::format("{}", fmt::join(widened_, ", "));
  }

  // The output that the caller is after goes first.
  std::vector<std::string> in_order(std::vector<std::string> outputs) {
    if (!options_.is_wanted_output) return outputs;
    std::vector<TensorDesc> inputs;
    for (const auto& input : model_.graph().input()) {
      const auto found = values_.find(input.name());
      if (found == values_.end() || found->second == kUnknown || !context_.inputs.contains(found->second))
        continue;
      inputs.push_back(context_.emitter.desc(found->second));
    }
    std::vector<std::size_t> wanted;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (options_.is_wanted_output(inputs, context_.emitter.desc(values_.at(outputs[i]))))
        wanted.push_back(i);
    }
    if (wanted.size() == 1)
      std::rotate(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(wanted[0]),
                  outputs.begin() + static_cast<std::ptrdiff_t>(wanted[0]) + 1);
    return outputs;
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
  std::unordered_set<std::string> wanted_;     // names that a node or the graph reads
  std::unordered_set<std::string> undecided_;  // nodes in branches that are perhaps not taken
  std::vector<Refusal> unsupported_;
  std::map<std::string, std::size_t> places_;  // in unsupported_, by reason
  std::vector<std::string> widened_;
  std::size_t widened_initializers_ = 0;
  OnnxModel result_;
};

}  // namespace

OnnxModel import_model(ParsedModel model, const std::vector<std::filesystem::path>& folders,
                       const OnnxOptions& options) {
  return Importer(std::move(model), folders, options).run();
}

}  // namespace pipit::internal::onnx
