// Runs the network that export.py has saved as a shared object, on 7 rows of 8 numbers; needs neither Python nor torch.
#include "net.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <vector>

class Net {
 public:
  explicit Net(const char* weights = nullptr) : model_(net_load(weights), net_unload) {
    if (!model_) throw std::runtime_error(net_error());
  }

  // One row of results for each row of numbers.
  std::vector<std::vector<float>> operator()(std::vector<float>& numbers, int64_t columns) const {
    torchmux_tensor input = {};
    input.data = numbers.data();
    input.dtype = TORCHMUX_FLOAT32;
    input.rank = 2;
    input.sizes[0] = static_cast<int64_t>(numbers.size()) / columns;
    input.sizes[1] = columns;
    torchmux_tensor outputs[NET_OUTPUTS];
    if (net_run(model_.get(), &input, outputs) != 0) throw std::runtime_error(net_error());
    const auto* at = static_cast<const float*>(outputs[0].data);
    std::vector<std::vector<float>> rows;
    for (int64_t i = 0; i < outputs[0].sizes[0]; i++) {
      rows.emplace_back(at, at + outputs[0].sizes[1]);
      at += outputs[0].sizes[1];
    }
    net_free_outputs(outputs);
    return rows;
  }

 private:
  std::unique_ptr<net_model, void (*)(net_model*)> model_;
};

int main(int count, char** arguments) {
  try {
    const Net net(count > 1 ? arguments[1] : nullptr);  // a file of weights, if they are not in the object
    std::vector<float> numbers(7 * 8);
    for (size_t i = 0; i < numbers.size(); i++) numbers[i] = -1 + 2.0f * i / (numbers.size() - 1);
    for (const auto& row : net(numbers, 8)) {
      for (size_t j = 0; j < row.size(); j++) std::printf(j ? " %.6f" : "%.6f", row[j]);
      std::printf("\n");
    }
    std::vector<float> wrong(7 * 9);
    try {
      net(wrong, 9);
    } catch (const std::runtime_error& error) {
      std::printf("refused: %s\n", error.what());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
}
