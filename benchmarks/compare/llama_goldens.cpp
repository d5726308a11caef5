// What the golden files need from libllama: token ids, and greedy continuations with the exact gaps of the
// two best logits.
//
//   llama_goldens MODEL tokenize               stdin: texts, each ended by a NUL; stdout: a line of ids for
//   each
//   llama_goldens MODEL greedy f32|f16 COUNT   stdin: lines of ids; stdout: lines of "id:gap" until COUNT or
//   an end token llama_goldens MODEL logits f32|f16 0|1     stdin: lines of ids, each a sequence of its own;
//   stdout: float32 logits of every position, one after the other; 1: with flash attention
//
// The second word of `greedy` and `logits` is the type of the key-value cache. Built by
// make_llama_goldens.py.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

using Tokens = std::vector<llama_token>;

constexpr int kSequences = 25;
constexpr int kContextTokens = 4096;

llama_context* make_context(llama_model* model, ggml_type cache, bool flash, int threads) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = kContextTokens;
  params.n_batch = params.n_ubatch = kContextTokens;
  params.n_seq_max = kSequences;
  params.kv_unified = true;
  params.n_threads = params.n_threads_batch = threads;
  params.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = cache;
  return llama_init_from_model(model, params);
}

std::vector<Tokens> read_lines() {
  std::vector<Tokens> lines;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream stream(line);
    lines.emplace_back(std::istream_iterator<llama_token>(stream), std::istream_iterator<llama_token>());
  }
  return lines;
}

void tokenize(const llama_vocab* vocab) {
  for (std::string text; std::getline(std::cin, text, '\0');) {
    Tokens ids(text.size() + 8);
    const int length = static_cast<int>(text.size());
    ids.resize(
        llama_tokenize(vocab, text.data(), length, ids.data(), static_cast<int>(ids.size()), true, true));
    for (llama_token id : ids) std::printf("%d ", id);
    std::printf("\n");
  }
}

struct Sequence {
  Tokens prompt;
  std::vector<float> gaps;
  Tokens output;
  int row = 0;  // of the last batch, where its logits lie
  bool done = false;
};

void add(llama_batch& batch, llama_token token, int position, int sequence, bool wants_logits) {
  const int row = batch.n_tokens++;
  batch.token[row] = token;
  batch.pos[row] = position;
  batch.n_seq_id[row] = 1;
  batch.seq_id[row][0] = sequence;
  batch.logits[row] = static_cast<int8_t>(wants_logits);
}

void decode(llama_context* context, llama_batch& batch) {
  if (llama_decode(context, batch) != 0) {
    std::fprintf(stderr, "llama_decode failed\n");
    std::exit(1);
  }
  batch.n_tokens = 0;
}

void take_best(llama_context* context, const llama_vocab* vocab, Sequence& sequence, int count) {
  const int size = llama_vocab_n_tokens(vocab);
  const float* logits = llama_get_logits_ith(context, sequence.row);
  const llama_token best = static_cast<llama_token>(std::max_element(logits, logits + size) - logits);
  float second = -1e30f;
  for (llama_token id = 0; id < size; ++id) {
    if (id != best) second = std::max(second, logits[id]);
  }
  sequence.output.push_back(best);
  sequence.gaps.push_back(logits[best] - second);
  sequence.done = llama_vocab_is_eog(vocab, best) || static_cast<int>(sequence.output.size()) == count;
}

// Each prompt by itself, then all sequences together, a token at a time.
void run_together(llama_context* context, const llama_vocab* vocab, std::vector<Sequence>& sequences,
                  int count) {
  llama_batch batch = llama_batch_init(kContextTokens, 0, 1);
  batch.n_tokens = 0;
  llama_memory_clear(llama_get_memory(context), true);
  const int number = static_cast<int>(sequences.size());
  for (int s = 0; s < number; ++s) {
    const Tokens& prompt = sequences[s].prompt;
    const int length = static_cast<int>(prompt.size());
    for (int i = 0; i < length; ++i) add(batch, prompt[i], i, s, i + 1 == length);
    sequences[s].row = length - 1;
    decode(context, batch);
    take_best(context, vocab, sequences[s], count);
  }
  for (int step = 0; step + 1 < count; ++step) {
    std::vector<int> alive;
    for (int s = 0; s < number; ++s) {
      Sequence& sequence = sequences[s];
      if (sequence.done) continue;
      sequence.row = batch.n_tokens;
      add(batch, sequence.output.back(), static_cast<int>(sequence.prompt.size()) + step, s, true);
      alive.push_back(s);
    }
    if (alive.empty()) break;
    decode(context, batch);
    for (int s : alive) take_best(context, vocab, sequences[s], count);
  }
  llama_batch_free(batch);
}

void greedy(llama_context* context, const llama_vocab* vocab, int count) {
  const std::vector<Tokens> prompts = read_lines();
  for (size_t first = 0; first < prompts.size(); first += kSequences) {
    std::vector<Sequence> sequences;
    for (size_t i = first; i < std::min(prompts.size(), first + kSequences); ++i) {
      sequences.emplace_back().prompt = prompts[i];
    }
    run_together(context, vocab, sequences, count);
    for (const Sequence& sequence : sequences) {
      for (size_t i = 0; i < sequence.output.size(); ++i) {
        std::printf("%d:%.5f ", sequence.output[i], static_cast<double>(sequence.gaps[i]));
      }
      std::printf("\n");
    }
    std::fflush(stdout);
  }
}

void logits(llama_context* context, const llama_vocab* vocab) {
  const size_t size = static_cast<size_t>(llama_vocab_n_tokens(vocab));
  llama_batch batch = llama_batch_init(kContextTokens, 0, 1);
  for (const Tokens& sequence : read_lines()) {
    llama_memory_clear(llama_get_memory(context), true);
    batch.n_tokens = 0;
    const int length = static_cast<int>(sequence.size());
    for (int i = 0; i < length; ++i) add(batch, sequence[i], i, 0, true);
    decode(context, batch);
    for (int i = 0; i < length; ++i) {
      std::fwrite(llama_get_logits_ith(context, i), sizeof(float), size, stdout);
    }
  }
  llama_batch_free(batch);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) return 1;
  const llama_vocab* vocab = llama_model_get_vocab(model);
  const std::string mode = argv[2];
  if (mode == "tokenize") {
    tokenize(vocab);
    return 0;
  }
  if (argc != 5) return 2;
  const ggml_type cache = std::string(argv[3]) == "f16" ? GGML_TYPE_F16 : GGML_TYPE_F32;
  const int number = std::atoi(argv[4]);
  if (mode == "greedy") {
    greedy(make_context(model, cache, false, 1), vocab, number);  // spinning barriers crawl on a busy machine
  } else if (mode == "logits") {
    logits(make_context(model, cache, number != 0, 2), vocab);
  } else {
    return 2;
  }
  return 0;
}
