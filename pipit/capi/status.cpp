// Statuses, strings and the library's version.
#include <cstdlib>
#include <cstring>
#include <new>

#include "pipit/capi/handles.h"
#include "pipit/version.h"

namespace pipit::internal::capi {

namespace {

// Where there is no memory to say so. Short enough to need none itself.
pipit_status& out_of_memory() {
  static auto& status = *new pipit_status{PIPIT_ERROR, "out of memory", {}};  // never destroyed
  return status;
}
// While there is memory.
[[maybe_unused]] pipit_status& made_early = out_of_memory();

constexpr std::string_view kBetweenReasons = "\n  ";

std::vector<std::string> reasons_in(std::string_view message) {
  std::vector<std::string> reasons;
  std::size_t begin = message.find(kBetweenReasons);
  while (begin != message.npos) {
    begin += kBetweenReasons.size();
    const std::size_t end = message.find(kBetweenReasons, begin);
    reasons.emplace_back(message.substr(begin, end == message.npos ? end : end - begin));
    begin = end;
  }
  return reasons;
}

pipit_code set(pipit_status** status, pipit_code code, const char* message) noexcept {
  if (status == nullptr) return code;
  try {
    *status = new pipit_status{code, message, reasons_in(message)};
    return code;
  } catch (...) {
    *status = &out_of_memory();
    return out_of_memory().code;
  }
}

}  // namespace

void clear(pipit_status** status) noexcept {
  if (status == nullptr || *status == nullptr) return;
  pipit_status_free(*status);
  *status = nullptr;
}

pipit_code report(pipit_status** status) noexcept {
  clear(status);
  try {
    throw;
  } catch (const ArgumentError& e) {
    return set(status, PIPIT_INVALID_ARGUMENT, e.what());
  } catch (const UnsupportedError& e) {
    return set(status, PIPIT_UNSUPPORTED, e.what());
  } catch (const Cancelled& e) {
    return set(status, PIPIT_CANCELLED, e.what());
  } catch (const std::bad_alloc&) {
    if (status != nullptr) *status = &out_of_memory();
    return PIPIT_ERROR;
  } catch (const std::exception& e) {
    return set(status, PIPIT_ERROR, e.what());
  } catch (...) {
    return set(status, PIPIT_ERROR, "an exception of an unknown type");
  }
}

void need(const void* argument, const char* name) {
  if (argument == nullptr) throw ArgumentError(std::string(name) + " is NULL");
}

char* new_string(const std::string& text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

void set_notes(char** notes, const std::vector<std::string>& lines) {
  if (notes == nullptr) return;
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  *notes = new_string(text);
}

}  // namespace pipit::internal::capi

using namespace pipit::internal::capi;

const char* pipit_version(void) {
  return pipit::version().data();  // a literal
}

int pipit_abi_version(void) {
  return PIPIT_ABI_VERSION;
}

pipit_code pipit_status_code(const pipit_status* status) {
  return status != nullptr ? status->code : PIPIT_OK;
}

const char* pipit_status_message(const pipit_status* status) {
  return status != nullptr ? status->message.c_str() : "";
}

size_t pipit_status_reason_count(const pipit_status* status) {
  return status != nullptr ? status->reasons.size() : 0;
}

const char* pipit_status_reason(const pipit_status* status, size_t index) {
  return status != nullptr ? text_at(status->reasons, index) : nullptr;
}

void pipit_status_free(pipit_status* status) {
  if (status != &out_of_memory()) delete status;
}

void pipit_string_free(char* string) {
  std::free(string);
}
