"""The keys of `platforms.slack`, besides those that every platform has."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints

from adapters.section import NO_SECRET, Url

Prompt = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class SlackConfig(BaseModel):
    """What the adapter has to know."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    bot_token: SecretStr = NO_SECRET
    """The bot token, xoxb-..., from the app's page "OAuth & Permissions"."""
    app_token: SecretStr = NO_SECRET
    """Needed for socket mode: the app-level token, xapp-..., with the scope connections:write."""
    mode: Literal["socket", "http"] = "socket"
    """socket: the gateway connects to Slack, nothing needs to be reachable. http: Slack calls api.public_url."""
    signing_secret: SecretStr = NO_SECRET
    """Needed for http mode: proves that a call comes from Slack. From the app's page "Basic Information"."""
    suggested_prompts: list[Prompt] = Field(default_factory=list[Prompt], max_length=3)
    """Up to three things to ask, as buttons on the bot's own page."""
    api_base: Url = "https://slack.com/api/"
    """Where the API is."""
