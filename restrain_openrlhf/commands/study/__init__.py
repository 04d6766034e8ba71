"""Studies: several configurations times several seeds, trained, resumed, and compared in tables and figures."""
