"""Puts configs/ and k8s/ into the package as it is built; everything else about the build is in pyproject.toml."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FOLDERS = ("configs", "k8s")
# restrain_openrlhf/config/documents.py looks for them there, and beside the package in a checkout.
PLACE = Path("restrain_openrlhf", "repository")


class BuildPackages(build_py):
    """The packages, and the checkout's own folders inside them; an editable installation reads these in their place."""

    def run(self) -> None:
        """Build into `build_lib`, which becomes the wheel."""
        super().run()
        if not self.editable_mode:
            for folder in FOLDERS:
                self.copy_tree(folder, str(Path(self.build_lib) / PLACE / folder))

    def get_source_files(self) -> list[str]:
        """What an sdist holds: a wheel can be built from it too."""
        ours = (path for folder in FOLDERS for path in Path(folder).rglob("*"))
        return [*super().get_source_files(), *(str(path) for path in ours if path.is_file())]


setup(cmdclass={"build_py": BuildPackages})
