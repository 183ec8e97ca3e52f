#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mezzo/core/table.h"

namespace mezzo::cli::page {

/// A picture, its title, and a sentence below.
struct Figure {
  std::string title;
  std::string svg;      ///< of draw()
  std::string caption;  ///< may be empty
};

/// An HTML page that needs no other file, no network and no JavaScript, light or dark as the
/// reader's system, for wide and narrow screens. It is well-formed XML too. All texts except
/// pictures are escaped; they may be any bytes.
class Page {
 public:
  explicit Page(std::string title) : title_(std::move(title)) {}

  void heading(const std::string& text);
  void paragraph(const std::string& text);
  /// A paragraph that stands out: an error or a warning.
  void alert(const std::string& text);
  void list(const std::vector<std::string>& items);
  /// Large values with their names below.
  void facts(const std::vector<std::pair<std::string, std::string>>& names_and_values);
  /// Side by side where there is room.
  void figures(const std::vector<Figure>& figures);
  void table(const Table& table);

  std::string html() const;

 private:
  void element(const std::string& tag, const std::string& text);

  std::string title_, body_;
};

}  // namespace mezzo::cli::page
