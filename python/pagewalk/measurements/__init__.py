"""The measurements of a design: fields, energy, histograms and intervals of a result."""
