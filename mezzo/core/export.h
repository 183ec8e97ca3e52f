#pragma once

/// Exports a symbol from the shared library; all others have hidden visibility.
#define MEZZO_API __attribute__((visibility("default")))
