"""Small folders laid out as data sets are on the hub, so that the hub's own loader reads them without a network."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CARD = """---
configs:
- config_name: {config}
  data_files:
  - split: {split}
    path: {path}
---
"""


def parquet_folder(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    split: str,
    config: str = "default",
    features: Any = None,
) -> Path:
    """A card and one Parquet file, with these features (types) or those that the rows have."""
    import datasets

    folder.mkdir(parents=True)
    data = datasets.Dataset.from_list(list(rows), features=features)
    path = f"{config}/{split}-00000-of-00001.parquet"
    data.to_parquet(str(folder / path))
    (folder / "README.md").write_text(CARD.format(config=config, split=split, path=path))
    return folder


def text_folder(folder: Path, name: str, text: str, split: str, config: str = "default") -> Path:
    """A card and one JSONL or CSV file."""
    folder.mkdir(parents=True)
    (folder / name).write_text(text, encoding="utf-8")
    (folder / "README.md").write_text(CARD.format(config=config, split=split, path=name))
    return folder
