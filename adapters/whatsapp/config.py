"""The keys of `platforms.whatsapp`, besides those that every platform has."""

from pydantic import BaseModel, ConfigDict, SecretStr

from adapters.section import NO_SECRET, Url


class WhatsAppConfig(BaseModel):
    """What the adapter has to know."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    access_token: SecretStr = NO_SECRET
    """The token of a system user. Temporary tokens stop working after a day."""
    phone_number_id: str = ""
    """The id of the number that the agent answers from. It is not the number itself."""
    app_secret: SecretStr = NO_SECRET
    """Proves that a call comes from Meta. Without it nothing is accepted."""
    verify_token: SecretStr = NO_SECRET
    """A word of your choice that Meta repeats when you register the webhook."""
    api_base: Url = "https://graph.facebook.com/v23.0"
    """Where the Cloud API is."""
