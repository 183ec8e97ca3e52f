#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "mezzo/core/error.h"
#include "mezzo/core/parse.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/options/sampling_options.h"

/// What an option is in the lists of option_fields.h: its name, member, checks and texts.
namespace mezzo::fields {

/// The commands that take an option, and its heading in their help.
enum class Group : std::uint8_t {
  kModelKind,  ///< --model; `compare` has its own flags for it, as for kPrecision
  kModel,
  kPrecision,
  kStep,       ///< one training step; the doctor takes these too
  kTraining,   ///< the run
  kProcesses,  ///< several processes
  kFiles,
  kData,  ///< no flag: commands set these from their arguments for the data
  kSampling,
};

template <class T>
struct Unwrapped {
  using Type = T;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using Type = T;
};
template <class T>
inline constexpr bool kIsOptional = !std::is_same_v<T, typename Unwrapped<T>::Type>;

/// Checks and properties of an option.
template <class Options, class T>
struct Rules {
  /// Throws InvalidArgument if the value is out of range.
  void (*check)(std::string_view name, typename Unwrapped<T>::Type value) = nullptr;
  /// Whether the option has a meaning beside the others; null: always. If not, setting it is an
  /// error.
  bool (*applies)(const Options& options) = nullptr;
  const char* why_not = nullptr;  ///< the error if it does not apply
  const char* needed = nullptr;   ///< the help text; not null: required if it applies
  bool in_checkpoint = true;      ///< false: may change when a run is resumed, as may lr
  bool in_recipe = false;         ///< recommended_options() sets it
  bool of_kinds = false;          ///< of the kinds of nn::Model: an error with a model of your own
};

/// One option.
template <class Options, class T>
struct Field {
  const char* name;  ///< the key in checkpoints, and the flag without dashes
  T Options::*member;
  Group group;
  const char* help;
  Rules<Options, T> rules;
};

template <class Options, class T>
constexpr Field<Options, T> field(const char* name, T Options::*member, Group group,
                                  const char* help,
                                  std::type_identity_t<Rules<Options, T>> rules = {}) {
  return {name, member, group, help, rules};
}

/// Calls `visitor(field)` for each field of the list, in order.
template <class... Fields, class Visitor>
void for_each(const std::tuple<Fields...>& list, Visitor&& visitor) {
  std::apply([&](const auto&... one) { (visitor(one), ...); }, list);
}

/// The list of words of an enumeration.
constexpr nn::ModelKinds words(nn::ModelKind /*kind*/) {
  return {};
}
constexpr nn::Normalizations words(nn::Normalization /*kind*/) {
  return {};
}
constexpr nn::Readouts words(ReduceOp /*kind*/) {
  return {};
}
constexpr nn::Decoders words(nn::Decoder /*kind*/) {
  return {};
}
constexpr OptimizerKinds words(OptimizerKind /*kind*/) {
  return {};
}
constexpr LossKinds words(LossKind /*kind*/) {
  return {};
}
constexpr GradientTraffics words(dist::GradientTraffic /*kind*/) {
  return {};
}
constexpr SamplerKinds words(SamplerKind /*kind*/) {
  return {};
}
constexpr SamplePlaces words(SamplePlace /*place*/) {
  return {};
}

template <class T>
concept Enumerated = requires(T value) {
  words(value);
};

/// The word or text of a value that is not a number, and the reverse, which throws InvalidArgument.
template <Enumerated T>
std::string to_text(T value) {
  return std::string(name_of(words(value), value));
}
inline std::string to_text(nn::ModelKind value) {
  return std::string(nn::to_string(value));
}
inline std::string to_text(amp::Precision value) {
  return std::string(amp::to_string(value));
}
inline std::string to_text(const LossScale& value) {
  return to_string(value);
}

template <Enumerated T>
void from_text(std::string_view name, const std::string& text, T& value) {
  value = parse(words(value), name, text);
}
inline void from_text(std::string_view /*name*/, const std::string& text, amp::Precision& value) {
  value = amp::parse_precision(text);
}
inline void from_text(std::string_view /*name*/, const std::string& text, LossScale& value) {
  value = parse_loss_scale(text);
}

template <class T>
concept Textual = requires(T value) {
  to_text(value);
};

/// Whether the option differs from its default.
template <class Options, class T>
bool is_set(const Field<Options, T>& field, const Options& options) {
  return !(options.*field.member == Options().*field.member);
}

/// The option's flag without dashes: a switch that is on by default has a flag to turn it off.
template <class Options, class T>
std::string flag_of(const Field<Options, T>& field) {
  if constexpr (std::is_same_v<T, bool>) {
    if (Options().*field.member) return std::string("no-") + field.name;
  }
  return field.name;
}

/// Throws InvalidArgument if the value is out of range.
template <class Options, class T>
void check_range(const Field<Options, T>& field, const Options& options) {
  if (field.rules.check == nullptr) return;
  const T& value = options.*field.member;
  if constexpr (kIsOptional<T>) {
    if (value) field.rules.check(field.name, *value);
  } else {
    field.rules.check(field.name, value);
  }
}

}  // namespace mezzo::fields
