// Reads texts from standard input, each as a 32-bit little-endian length and that many bytes, and prints the
// ids that llama.cpp makes of each, one text a line. Arguments: model, add special tokens (0 or 1), parse
// special tokens (0 or 1). Build: g++ -O1 -I LLAMA/include -I LLAMA/ggml/include llama_tokenize.cpp -L
// BUILD/bin -lllama -lggml -lggml-base
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "llama.h"

static void silent(ggml_log_level, const char*, void*) {}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  llama_log_set(silent, nullptr);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model* model = llama_model_load_from_file(argv[1], params);
  if (model == nullptr) return 1;
  const llama_vocab* vocab = llama_model_get_vocab(model);
  const bool add = std::atoi(argv[2]) != 0;
  const bool parse = std::atoi(argv[3]) != 0;
  uint32_t size = 0;
  while (std::fread(&size, 4, 1, stdin) == 1) {
    std::string text(size, '\0');
    if (size != 0 && std::fread(text.data(), 1, size, stdin) != size) return 3;
    std::vector<llama_token> ids(4 * static_cast<size_t>(size) + 16);
    const int32_t count = llama_tokenize(vocab, text.data(), static_cast<int32_t>(size), ids.data(),
                                         static_cast<int32_t>(ids.size()), add, parse);
    for (int32_t i = 0; i < count; ++i) std::printf("%d ", ids[i]);
    std::puts("");
  }
}
