// Exceptions that a library throws are caught by their types outside of it.
#include <pipit/pipit.h>

#include <cstdio>
#include <string>

// The kind of what `act` throws.
template <typename Act>
std::string thrown(Act act) {
  try {
    act();
  } catch (const pipit::UnsupportedError&) {
    return "UnsupportedError";
  } catch (const pipit::Error&) {
    return "Error";
  } catch (...) {
    return "something else";
  }
  return "nothing";
}

int main() {
  const std::string gif = "GIF89a..........";
  const std::string first =
      thrown([&] { pipit::Classifier("resnet20-cifar10").classify_encoded(std::as_bytes(std::span(gif))); });
  const std::string second = thrown([] { pipit::CompiledModel("no such model"); });
  const std::string third = thrown([] { pipit::Shape{-1}; });
  std::printf("%s, %s, %s\n", first.c_str(), second.c_str(), third.c_str());
  return first == "UnsupportedError" && second == "Error" && third == "Error" ? 0 : 1;
}
