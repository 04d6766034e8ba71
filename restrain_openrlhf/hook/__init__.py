"""RESTRAIN inside OpenRLHF: the only package that imports openrlhf or ray."""
