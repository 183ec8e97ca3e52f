#pragma once

#include <sstream>

#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "support/npy_writer.h"

/// Runs the built command and captures its output.
namespace mezzo::test {

using Words = std::vector<std::string>;

/// `words`, then `more`.
inline Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no '" << part << "' in: " << text;
}

struct Outcome {
  int code = -1;  ///< exit code; -1: ended by a signal
  std::string out, err;

  std::int64_t num_error_lines() const {
    std::int64_t lines = 0;
    for (const char c : err) lines += c == '\n' ? 1 : 0;
    return lines;
  }
};

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline nlohmann::json read_json(const std::string& path) {
  return nlohmann::json::parse(read_text(path));
}

/// Quotes a word for the shell.
inline std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// Runs `mezzo <words>`, with its output in files of `folder`; output: a file for the standard
/// output.
inline Outcome run_mezzo(const TempFolder& folder, const Words& words,
                         const std::string& output = "") {
  std::string line = quoted(MEZZO_COMMAND);
  for (const std::string& word : words) line += " " + quoted(word);
  const std::string out = output.empty() ? folder.path("stdout.txt") : output;
  const std::string err = folder.path("stderr.txt");
  const int status =
      std::system((line + " >" + quoted(out) + " 2>" + quoted(err) + " </dev/null").c_str());
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = output.empty() ? read_text(out) : "",
          .err = read_text(err)};
}

/// run_mezzo(), which has to end with this exit code.
inline Outcome run_to(int code, const TempFolder& folder, const Words& words) {
  Outcome outcome = run_mezzo(folder, words);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  return outcome;
}

/// Runs `mezzo <words> --json FILE` and returns the report. Expects this exit code.
inline nlohmann::json report_of(const TempFolder& folder, const Words& words, int code = 0) {
  const std::string path = folder.path("report_of.json");
  run_to(code, folder, with(words, {"--json", path}));
  return read_json(path);
}

/// Writes an npy folder `name` of 24 nodes in two rings, one for each class, with two splits, and
/// returns its path.
inline std::string write_rings(const TempFolder& folder, const std::string& name = "rings") {
  constexpr std::int64_t kNodes = 24;
  std::vector<std::int64_t> src, dst, labels;
  std::vector<float> features;
  std::string train, val, test;
  for (std::int64_t i = 0; i < kNodes; ++i) {
    const std::int64_t next = (i + 2) % kNodes, before = (i + kNodes - 2) % kNodes;
    src.insert(src.end(), {i, i});
    dst.insert(dst.end(), {next, before});
    labels.push_back(i % 2);
    for (std::int64_t f = 0; f < 3; ++f) {
      const auto noise = static_cast<float>((i * 7 + f * 3) % 5) / 8;
      features.push_back((i % 2 == 0 ? 1.0F : -1.0F) + noise);
    }
    const std::int64_t part = i / 2 % 4;
    train += part < 2 ? "11" : "00";
    val += part == 2 ? "10" : part == 3 ? "01" : "00";
    test += part == 3 ? "10" : part == 2 ? "01" : "00";
  }
  std::vector<std::int64_t> edges = src;
  edges.insert(edges.end(), dst.begin(), dst.end());
  folder.write(name + "/edge_index.npy", npy_int64({2, 2 * kNodes}, edges));
  folder.write(name + "/features.npy", npy_float32({kNodes, 3}, features));
  folder.write(name + "/labels.npy", npy_int64({kNodes}, labels));
  folder.write(name + "/train_mask.npy", npy_bool({kNodes, 2}, train));
  folder.write(name + "/val_mask.npy", npy_bool({kNodes, 2}, val));
  folder.write(name + "/test_mask.npy", npy_bool({kNodes, 2}, test));
  return folder.path(name);
}

}  // namespace mezzo::test
