// Einsum: sums of products over named dimensions. Operands are joined pairwise, from the left: dimensions that both
// have and others still need are a batch, those that nothing else needs are summed by a matrix product.
#include <algorithm>
#include <optional>

#include "layers/ops/operands.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "models/onnx/read/operators.h"
#include "models/onnx/read/steps.h"

namespace pipit::internal::onnx {

namespace {

// A dimension each. Those of an ellipsis have the names '0', '1', ... counted from the last.
using Labels = std::string;

struct Term {
  ValueId value;
  Labels labels;
};

struct Equation {
  std::vector<Labels> operands;  // "..." is one '.'
  std::optional<Labels> output;
};

Equation parse_equation(const std::string& text) {
  Equation equation;
  Labels labels;
  bool after_arrow = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      labels += c;
    } else if (text.compare(i, 3, "...") == 0 && labels.find('.') == Labels::npos) {
      labels += '.';
      i += 2;
    } else if (c == ',' && !after_arrow) {
      equation.operands.push_back(std::move(labels));
      labels.clear();
    } else if (text.compare(i, 2, "->") == 0 && !after_arrow) {
      equation.operands.push_back(std::move(labels));
      labels.clear();
      after_arrow = true;
      ++i;
    } else {
      fail("equation '{}': unexpected '{}' at position {}", text, c, i);
    }
  }
  if (after_arrow) {
    equation.output = std::move(labels);
  } else {
    equation.operands.push_back(std::move(labels));
  }
  return equation;
}

bool has(const Labels& labels, char label) {
  return labels.find(label) != Labels::npos;
}

Labels ellipsis(int dimensions) {
  Labels labels;
  for (int d = dimensions - 1; d >= 0; --d) labels += static_cast<char>('0' + d);
  return labels;
}

Labels replaced(const Labels& labels, const Labels& instead) {
  Labels result;
  for (const char c : labels) result += c == '.' ? instead : Labels(1, c);
  return result;
}

class EinsumConverter {
 public:
  explicit EinsumConverter(NodeContext& node) : steps_(node), text_(node.attributes().text("equation", "")) {
    const Equation equation = parse_equation(text_);
    if (equation.operands.size() != node.inputs().size())
      fail("equation '{}' has {} operands, the node {} inputs", text_, equation.operands.size(),
           node.inputs().size());
    int widest = 0;
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      const ValueId value = node.input(static_cast<int>(i));
      const Labels& labels = equation.operands[i];
      const int left = steps_.shape(value).rank() - static_cast<int>(labels.size());
      const bool open = has(labels, '.');
      if (open ? left < -1 : left != 0)
        fail("equation '{}': operand {} is {}", text_, i, steps_.shape(value).str());
      const int hidden = open ? left + 1 : 0;
      widest = std::max(widest, hidden);
      terms_.push_back({value, replaced(labels, ellipsis(hidden))});
      check_extents(terms_.back());
    }
    output_ =
        equation.output ? replaced(*equation.output, ellipsis(widest)) : implied_output(ellipsis(widest));
    for (const char label : output_) {
      if (std::ranges::count(output_, label) > 1)
        fail("equation '{}': the output has '{}' twice", text_, label);
      if (std::ranges::none_of(terms_, [&](const Term& term) { return has(term.labels, label); }))
        fail("equation '{}': no operand has '{}'", text_, label);
    }
  }

  ValueId convert() {
    for (std::size_t i = 0; i < terms_.size(); ++i) terms_[i] = without_repeated(terms_[i]);
    Term result = terms_[0];
    result = without_unused(result, needed_after(0));
    for (std::size_t i = 1; i < terms_.size(); ++i)
      result = product(result, without_unused(terms_[i], needed_after(i) + result.labels), needed_after(i));
    return arranged(result, output_);
  }

 private:
  std::int64_t extent(const Term& term, char label) const {
    return steps_.shape(term.value)[static_cast<int>(term.labels.find(label))];
  }

  // Every label has one extent; those of an ellipsis broadcast, and so do others, as in ONNX Runtime.
  void check_extents(const Term& term) {
    for (std::size_t d = 0; d < term.labels.size(); ++d) {
      const std::int64_t here = steps_.shape(term.value)[static_cast<int>(d)];
      for (const Term& other : terms_) {
        for (std::size_t e = 0; e < other.labels.size(); ++e) {
          const std::int64_t there = steps_.shape(other.value)[static_cast<int>(e)];
          const bool one_operand = &other == &term;
          if (other.labels[e] == term.labels[d] && here != there &&
              (one_operand || (here != 1 && there != 1)))
            fail("equation '{}': '{}' is {} and {}", text_, term.labels[d], here, there);
        }
      }
    }
  }

  // Those of the ellipsis, then those that occur once, in alphabetical order.
  Labels implied_output(const Labels& hidden) const {
    Labels all;
    for (const Term& term : terms_) all += term.labels;
    Labels once;
    for (const char label : all) {
      if (label > '9' && std::ranges::count(all, label) == 1) once += label;
    }
    std::ranges::sort(once);
    return hidden + once;
  }

  // The labels that operands after `index` or the output have.
  Labels needed_after(std::size_t index) const {
    Labels needed = output_;
    for (std::size_t i = index + 1; i < terms_.size(); ++i) needed += terms_[i].labels;
    return needed;
  }

  // The diagonal where an operand has a label twice: both dimensions become one, of which every (n + 1)-th is taken.
  Term without_repeated(Term term) {
    for (std::size_t d = 0; d < term.labels.size(); ++d) {
      const std::size_t again = term.labels.find(term.labels[d], d + 1);
      if (again == Labels::npos) continue;
      const char label = term.labels[d];
      Term moved{term.value, {}};
      std::vector<std::int64_t> order;
      for (std::size_t e = 0; e < term.labels.size(); ++e) {
        if (e == d || e == again) continue;
        order.push_back(static_cast<std::int64_t>(e));
        moved.labels += term.labels[e];
      }
      order.push_back(static_cast<std::int64_t>(d));
      order.push_back(static_cast<std::int64_t>(again));
      moved.labels += label;
      const Shape& shape = steps_.shape(term.value);
      const std::int64_t n = shape[static_cast<int>(d)];
      moved.value = steps_.transpose(term.value, order);
      std::vector<std::int64_t> dims;
      for (std::size_t e = 0; e + 2 < order.size(); ++e) dims.push_back(shape[static_cast<int>(order[e])]);
      dims.push_back(checked_mul(n, n, "Einsum"));
      moved.value = steps_.reshape(moved.value, Shape(dims));
      const auto axis = static_cast<std::int64_t>(dims.size()) - 1;
      if (n > 1)
        moved.value = steps_.add<Slice>({moved.value}, SliceAttributes{{0}, {n * n}, {axis}, {n + 1}});
      term = moved;
      d = static_cast<std::size_t>(-1);  // once more from the first
    }
    return term;
  }

  Term without_unused(const Term& term, const Labels& used) {
    Term result{term.value, {}};
    std::vector<std::int64_t> axes;
    for (std::size_t d = 0; d < term.labels.size(); ++d) {
      if (has(used, term.labels[d])) {
        result.labels += term.labels[d];
      } else {
        axes.push_back(static_cast<std::int64_t>(d));
      }
    }
    result.value = steps_.reduce(ReduceKind::sum, term.value, axes, false);
    return result;
  }

  // Dimensions in the order of `labels`, which are the term's own.
  ValueId arranged(const Term& term, const Labels& labels) {
    std::vector<std::int64_t> order;
    for (const char label : labels) order.push_back(static_cast<std::int64_t>(term.labels.find(label)));
    return steps_.transpose(term.value, order);
  }

  Shape extents(const Term& term, const Labels& labels) const {
    std::vector<std::int64_t> dims;
    for (const char label : labels) dims.push_back(has(term.labels, label) ? extent(term, label) : 1);
    return Shape(dims);
  }

  // One product of all elements with equal labels; what no one needs is summed.
  Term product(const Term& a, const Term& b, const Labels& needed) {
    Labels batch;
    Labels rows;
    Labels columns;
    Labels summed;
    bool repeats = false;  // an operand has extent 1 where the other has more
    for (const char label : a.labels) {
      if (!has(b.labels, label)) {
        rows += label;
        continue;
      }
      (has(needed, label) ? batch : summed) += label;
      repeats = repeats || extent(a, label) != extent(b, label);
    }
    for (const char label : b.labels) {
      if (!has(a.labels, label)) columns += label;
    }
    const bool real = is_floating(steps_.dtype(a.value));
    // A matrix product has one batch of both, which are merged, or as many dimensions as there are.
    const bool fits =
        !repeats || (static_cast<int>(batch.size()) + 2 <= kMaxRank && !repeats_any(a, b, summed));
    if (real && fits && !summed.empty()) return matrix_product(a, b, batch, rows, columns, summed, repeats);
    return plain_product(a, b, batch + rows + columns, summed);
  }

  bool repeats_any(const Term& a, const Term& b, const Labels& labels) const {
    return std::ranges::any_of(labels, [&](char label) { return extent(a, label) != extent(b, label); });
  }

  Term matrix_product(const Term& a, const Term& b, const Labels& batch, const Labels& rows,
                      const Labels& columns, const Labels& summed, bool repeats) {
    const Shape left = extents(a, rows);
    const Shape right = extents(b, columns);
    const Shape inner = extents(a, summed);
    const auto matrices = [&](const Term& term, std::int64_t m, std::int64_t n) {
      const Shape own = extents(term, batch);
      std::vector<std::int64_t> dims(own.dims().begin(), own.dims().end());
      if (!repeats && batch.size() > 1) dims = {own.elements()};
      dims.push_back(m);
      dims.push_back(n);
      return Shape(dims);
    };
    const ValueId x =
        steps_.reshape(arranged(a, batch + rows + summed), matrices(a, left.elements(), inner.elements()));
    const ValueId y = steps_.reshape(arranged(b, batch + summed + columns),
                                     matrices(b, inner.elements(), right.elements()));
    const Shape both = broadcast_shapes(extents(a, batch), extents(b, batch));
    std::vector<std::int64_t> dims(both.dims().begin(), both.dims().end());
    dims.insert(dims.end(), left.dims().begin(), left.dims().end());
    dims.insert(dims.end(), right.dims().begin(), right.dims().end());
    return {steps_.reshape(steps_.matmul(x, y), Shape(dims)), batch + rows + columns};
  }

  Term plain_product(const Term& a, const Term& b, const Labels& kept, const Labels& summed) {
    const Labels all = kept + summed;
    if (all.size() > static_cast<std::size_t>(kMaxRank))
      fail_unsupported("equation '{}' has {} dimensions in one product; at most {} are supported", text_,
                       all.size(), kMaxRank);
    const auto spread = [&](const Term& term) {
      Labels own;
      for (const char label : all) own += has(term.labels, label) ? Labels(1, label) : Labels();
      return steps_.reshape(arranged(term, own), extents(term, all));
    };
    return without_unused({steps_.binary(BinaryKind::mul, spread(a), spread(b)), all}, kept);
  }

  Steps steps_;
  std::string text_;
  std::vector<Term> terms_;
  Labels output_;
};

std::vector<ValueId> convert_einsum(NodeContext& node) {
  return {EinsumConverter(node).convert()};
}

constexpr Operator kEinsumOperators[] = {
    {"Einsum", 12, kLastOpset, 1, kVariadic, convert_einsum},
};

}  // namespace

std::span<const Operator> einsum_operators() {
  return kEinsumOperators;
}

}  // namespace pipit::internal::onnx
