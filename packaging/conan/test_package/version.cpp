// Links with the package and reaches its readers: the version, and the error of a model that does not exist.
#include <pipit/pipit.h>

#include <iostream>

int main() try {
  const pipit::CompiledModel model("no such model.onnx");
  return 1;
} catch (const pipit::Error& e) {
  std::cout << "pipit " << pipit::version() << ": " << e.what() << '\n';
}
