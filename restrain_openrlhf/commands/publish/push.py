"""Pushes a published folder to the hub. A push that breaks off shows nothing, and goes on where it was."""

from pathlib import Path

from restrain_openrlhf.commands.publish.folder import CONFIGURATION
from restrain_openrlhf.commands.publish.private import HUB_ID
from restrain_openrlhf.errors import ConfigError, RunError

# Of an earlier push: another model may have fewer of them.
REPLACED = ["*.safetensors", "*.bin", "*.index.json", "adapter/*", "figures/*"]
WEIGHTS = (".safetensors", ".bin", ".gguf")


def refuse_wrong_name(repository: str) -> None:
    """Raises ConfigError for what is no OWNER/NAME."""
    if not HUB_ID.fullmatch(repository):
        raise ConfigError(f"--push {repository!r}: give OWNER/NAME, such as my-name/my-model.")


def push(folder: Path, repository: str, private: bool, message: str) -> str:
    """Make the repository if it is missing and commit the folder to it, in one commit; returns its address.

    The token is the hub's own: HF_TOKEN, or that of `hf auth login`. Raises RunError where the hub refuses or the
    connection breaks, ConfigError for a repository that holds another model.
    """
    import httpx  # noqa: PLC0415 - see data/model_files.py
    from huggingface_hub import HfApi  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError  # noqa: PLC0415

    api = HfApi()
    try:
        url = api.create_repo(repository, private=private, exist_ok=True)
        files = api.list_repo_files(repository)
        if CONFIGURATION not in files and any(name.endswith(WEIGHTS) for name in files):
            raise ConfigError(
                f"--push {repository}: holds a model that `restrain publish` did not put there. Name another "
                "repository, or remove its weights first."
            )
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message, delete_patterns=REPLACED)
    except HFValidationError as error:
        raise ConfigError(f"--push {repository!r}: {_short(error)}") from error
    except (httpx.HTTPError, OSError) as error:
        if isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403):
            raise RunError(
                f"{repository}: the hub does not let you write there ({_short(error)}). Log in with `hf auth login`, "
                "or set HF_TOKEN to a token that may write to it, and run the same command again."
            ) from error
        what = "the hub refused" if isinstance(error, HfHubHTTPError) else "the connection to the hub broke"
        raise RunError(
            f"{repository}: {what} ({_short(error)}). Nothing of this push is to be seen there. Run the same command "
            "again: what had arrived is not sent again."
        ) from error
    return str(url)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
