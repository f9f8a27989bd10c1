"""The `platforms` section. It lives here and not with the adapters, so that a configuration can be checked without any SDK."""

from typing import Literal

from pydantic import Field, SecretStr

from gateway.config.section import Id, Section, Url

NO_SECRET = SecretStr("")


class PlatformSection(Section):
    """What every platform has in common."""

    enabled: bool = False
    """true: the gateway connects to this platform. false: the rest of its section is kept, but not used."""
    allowed_users: list[Id] = Field(default_factory=list[Id])
    """Stable ids of the people who may talk to the agent, in quotes. Empty: nobody. ["*"]: anybody who finds the bot."""
    allowed_chats: list[Id] = Field(default_factory=list[Id])
    """Groups and channels in which everybody present may talk to the agent. Approvals and /new, /resume, /forget, /stop stay
    with allowed users. ["*"]: every group it is invited to."""
    require_mention: bool = True
    """true: in groups and channels only messages that mention the bot or reply to it are for it. false: it reads all of them."""
    dm_scope: Literal["owner", "per_user", "shared"] = "owner"
    """owner: your direct messages on all platforms share one memory, other people have one each. per_user: everybody has a
    session of their own. shared: all direct messages are one conversation."""
    owner: str = ""
    """The id of the person whom the agent belongs to. Empty: the first of allowed_users, or the first who is paired."""
    group_sessions_per_user: bool = False
    """true: in a group everybody has a conversation of their own with the agent. false: the group shares one."""
    thread_sessions: bool = False
    """true: every thread or topic is a conversation of its own. false: threads belong to the conversation of their chat."""
    unknown_users: Literal["pair", "ignore"] = "pair"
    """pair: a stranger gets a code that you can approve with `hermes pair approve CODE`. ignore: a stranger gets no answer."""
    api_base: Url = ""
    """Another server that speaks this platform's API: a self-hosted one, a proxy, a test double. Empty: the platform itself."""


class TelegramSection(PlatformSection):
    """A Telegram bot."""

    token: SecretStr = NO_SECRET
    """The bot's token from @BotFather. Who has it can read and write as the bot."""
    mode: Literal["polling", "webhook"] = "polling"
    """polling: the gateway asks Telegram, nothing needs to be reachable. webhook: Telegram calls api.public_url."""
    webhook_secret: SecretStr = NO_SECRET
    """Needed for webhook mode: proves that a call comes from Telegram. Letters, digits, _ and - only."""


class DiscordSection(PlatformSection):
    """A Discord bot. Its intent "Message Content" must be switched on in Discord's developer portal."""

    token: SecretStr = NO_SECRET
    """The bot's token from the developer portal. Who has it can read and write as the bot."""
    gateway_url: Url = ""
    """The websocket that belongs to api_base. Empty: Discord's own."""


class SlackSection(PlatformSection):
    """A Slack app."""

    bot_token: SecretStr = NO_SECRET
    """The bot token, xoxb-..., from the app's page "OAuth & Permissions"."""
    app_token: SecretStr = NO_SECRET
    """Needed for socket mode: the app-level token, xapp-..., with the scope connections:write."""
    mode: Literal["socket", "http"] = "socket"
    """socket: the gateway connects to Slack, nothing needs to be reachable. http: Slack calls api.public_url."""
    signing_secret: SecretStr = NO_SECRET
    """Needed for http mode: proves that a call comes from Slack. From the app's page "Basic Information"."""


class WhatsAppSection(PlatformSection):
    """A WhatsApp Business number over Meta's Cloud API. Meta calls api.public_url."""

    access_token: SecretStr = NO_SECRET
    """The token of a system user. Temporary tokens stop working after a day."""
    phone_number_id: str = ""
    """The id of the number that the agent answers from. It is not the number itself."""
    app_secret: SecretStr = NO_SECRET
    """Proves that a call comes from Meta. Without it nothing is accepted."""
    verify_token: SecretStr = NO_SECRET
    """A word of your choice that Meta repeats when you register the webhook."""


class PlatformsSection(Section):
    """Where people reach the agent."""

    telegram: TelegramSection = TelegramSection()
    """Telegram."""
    discord: DiscordSection = DiscordSection()
    """Discord."""
    slack: SlackSection = SlackSection()
    """Slack."""
    whatsapp: WhatsAppSection = WhatsAppSection()
    """WhatsApp."""

    def by_name(self) -> dict[str, PlatformSection]:
        return {"telegram": self.telegram, "discord": self.discord, "slack": self.slack, "whatsapp": self.whatsapp}
