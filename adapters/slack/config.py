"""The keys of `platforms.slack`, besides those that every platform has."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, SecretStr

from adapters.section import NO_SECRET, Url


class SlackConfig(BaseModel):
    """What the adapter has to know."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    bot_token: SecretStr = NO_SECRET
    """The bot token, xoxb-..., from the app's page "OAuth & Permissions"."""
    app_token: SecretStr = NO_SECRET
    """Needed for socket mode: the app-level token, xapp-..., with the scope connections:write."""
    mode: Literal["socket", "http"] = "socket"
    """socket: the gateway connects to Slack, nothing needs to be reachable. http: Slack calls api.public_url."""
    signing_secret: SecretStr = NO_SECRET
    """Needed for http mode: proves that a call comes from Slack. From the app's page "Basic Information"."""
    api_base: Url = "https://slack.com/api/"
    """Where the API is."""
