"""WhatsApp, through Meta's Cloud API. This file says what there is; the adapter is imported when it is needed."""

from adapters.registry import Manifest, Needed
from sessions.keys import ChatKind, Platform, whatsapp_id

MANIFEST = Manifest(
    platform=Platform.WHATSAPP,
    title="WhatsApp",
    adapter="adapters.whatsapp.adapter:WhatsApp",
    config="adapters.whatsapp.config:WhatsAppConfig",
    config_keys=("access_token", "phone_number_id", "app_secret", "verify_token", "api_base"),
    sdk="aiohttp",
    extra="whatsapp",
    needed=(
        Needed(key="access_token", why="write the system user's token, or enabled: false"),
        Needed(key="phone_number_id", why="write the id of the number that answers"),
        Needed(key="app_secret", why="without it anybody could write as Meta"),
        Needed(key="verify_token", why="write the word that Meta repeats when the webhook is registered"),
    ),
    webhook_mode="*",
    chat_kinds=(ChatKind.DM, ChatKind.GROUP),
    normal_user_id=whatsapp_id,
    setup_steps=(
        "Open developers.facebook.com, make an app of type Business, and add the product WhatsApp.",
        "Make a system user with the permissions whatsapp_business_messaging and whatsapp_business_management, and a token for it.",
        "Copy the phone number id (WhatsApp, API setup) and the app secret (App settings, Basic); choose a verify token yourself.",
    ),
)
