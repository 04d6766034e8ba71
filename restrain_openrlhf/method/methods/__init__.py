"""The methods that come with the package, one idea per file: importing the folder registers whatever is in it."""

import importlib
import pkgutil

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
