"""The `mlflow:` block: a tracking server, or a folder, that gets a run's numbers beside metrics.jsonl."""

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

# Words that MLflow takes in the place of an address.
NAMED = ("databricks", "databricks-uc")


class MlflowSettings(BaseModel):
    """Where the numbers go. MLflow reads passwords and tokens from its own environment variables."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tracking_uri: str = Field(
        min_length=1, description="MLflow's server, such as http://mlflow:5000, or a folder, or `databricks`."
    )
    experiment: str = Field(default="restrain", min_length=1, description="The experiment; it is made if missing.")

    @field_validator("tracking_uri")
    @classmethod
    def _address(cls, uri: str) -> str:
        """Folders become absolute: Ray's workers have folders of their own."""
        if uri in NAMED:
            return uri
        if "://" not in uri and not uri.startswith("file:"):
            return Path(uri).expanduser().absolute().as_uri()
        if urlsplit(uri).password or urlsplit(uri).username:
            raise ValueError(
                "must not have a user or a password in it, which would be kept with the run. Put them into "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or a token into MLFLOW_TRACKING_TOKEN"
            )
        return uri
