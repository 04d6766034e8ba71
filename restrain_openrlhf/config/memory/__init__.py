"""How much memory a layout needs: arithmetic on OpenRLHF's flags and a model's shape that can be checked by hand."""
