#include "mezzo/dist/rendezvous/failure.h"

#include <atomic>
#include <exception>
#include <new>
#include <system_error>

#include <c10/util/Exception.h>

#include "mezzo/core/error.h"

namespace mezzo::dist::detail {
namespace {

std::atomic<bool> failed_with_another = false;

}  // namespace

bool comes_from_another(const std::exception& error) {
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr) return true;
  // Gloo's exceptions have none of these types.
  return dynamic_cast<const c10::Error*>(&error) == nullptr &&
         dynamic_cast<const std::bad_alloc*>(&error) == nullptr &&
         dynamic_cast<const std::system_error*>(&error) == nullptr;
}

void note_failure_of_another() noexcept {
  failed_with_another.store(true);
}

void forget_failure_of_another() noexcept {
  failed_with_another.store(false);
}

bool has_failed_with_another() noexcept {
  return failed_with_another.load();
}

Failure current_failure() {
  try {
    throw;
  } catch (const InvalidArgument& error) {
    return {FailureKind::kInvalidArgument, error.what()};
  } catch (const IoError& error) {
    return {FailureKind::kIoError, error.what()};
  } catch (const NumericError& error) {
    return {FailureKind::kNumericError, error.what()};
  } catch (const LogicError& error) {
    return {FailureKind::kLogicError, error.what()};
  } catch (const c10::Error& error) {
    return {FailureKind::kOther, error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {FailureKind::kOther, error.what()};
  } catch (...) {
    return {FailureKind::kOther, "an exception that is no std::exception"};
  }
}

void raise_failure(const Failure& failure, std::int64_t rank) {
  note_failure_of_another();
  const std::string text = fmt::format("rank {}: {}", rank, failure.text);
  switch (failure.kind) {
    case FailureKind::kInvalidArgument:
      throw InvalidArgument(text);
    case FailureKind::kIoError:
      throw IoError(text);
    case FailureKind::kNumericError:
      throw NumericError(text);
    case FailureKind::kLogicError:
      throw LogicError(text);
    case FailureKind::kOther:
      break;
  }
  throw Error(text);
}

}  // namespace mezzo::dist::detail
