#include "engine/base/parse_json.h"

#include <algorithm>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json_problem.h"

namespace pipit::internal {

namespace {

using Json = JsonDocument;

// The library's own parser looks up every new member among its siblings, and with a callback visits all elements of a
// list when one of them ends: both take quadratic time.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(int most_levels) : most_levels_(static_cast<std::size_t>(most_levels)) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value) != nullptr; }
  bool string(string_t& value) override { return add(std::move(value)) != nullptr; }
  bool binary(binary_t& /*value*/) override { return false; }  // not in texts

  bool start_object(std::size_t /*size*/) override { return open(Json::object()); }
  bool start_array(std::size_t /*size*/) override { return open(Json::array()); }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override {
    check_keys(open_.back()->get_ref<const Json::object_t&>());
    open_.pop_back();
    return true;
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const Json::exception& e) override {
    fail("{}", json_problem(e.what()));
  }

 private:
  // Lists and objects that are open do not move: each is the last element of the one before.
  Json* add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) return &parent.get_ref<Json::array_t&>().emplace_back(std::move(value));
    return &parent.get_ref<Json::object_t&>().emplace_back(std::move(key_), std::move(value)).second;
  }

  bool open(Json empty) {
    if (open_.size() == most_levels_) fail("its JSON is nested deeper than {} levels", most_levels_);
    open_.push_back(add(std::move(empty)));
    return true;
  }

  static void check_keys(const Json::object_t& members) {
    std::vector<const std::string*> keys;
    keys.reserve(members.size());
    for (const auto& member : members) keys.push_back(&member.first);
    std::ranges::sort(keys, [](const std::string* a, const std::string* b) { return *a < *b; });
    const auto twice =
        std::ranges::adjacent_find(keys, [](const std::string* a, const std::string* b) { return *a == *b; });
    if (twice != keys.end()) fail("the key {} is there twice", shown(Json(**twice)));
  }

  std::size_t most_levels_;
  Json root_;
  std::vector<Json*> open_;
  std::string key_;
};

}  // namespace

JsonDocument parse_json(std::string_view text, int most_levels) {
  Builder builder(most_levels);
  Json::sax_parse(text, &builder);
  return builder.take();
}

std::string shown(const JsonDocument& json) {
  constexpr std::size_t kMaxShown = 80;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, kMaxShown);
}

}  // namespace pipit::internal
