"""Terminal output, pages, charts and pictures: all that draws or prints."""
