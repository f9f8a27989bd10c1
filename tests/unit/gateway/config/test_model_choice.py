"""Which model answers when."""

import pytest

from gateway.config.model import Config
from gateway.config.model_choice import OPENAI, OPENROUTER, choose_model

BOTH = {"OPENAI_API_KEY": "o", "OPENROUTER_API_KEY": "r"}


def config(**model: object) -> Config:
    return Config.model_validate({"model": model})


def test_what_is_configured_comes_first():
    chosen = choose_model(config(name="m", base_url="http://h/v1", api_key="k"), BOTH, lambda: "llama")

    assert (chosen.name, chosen.base_url, chosen.api_key) == ("m", "http://h/v1", "k")


@pytest.mark.parametrize(("url", "key"), [(OPENAI, "o"), (OPENROUTER + "/", "r"), ("http://elsewhere/v1", "")])
def test_a_known_endpoint_takes_its_usual_key_and_no_other(url, key):
    assert choose_model(config(name="m", base_url=url), BOTH, lambda: None).api_key == key


@pytest.mark.parametrize(
    ("environ", "base_url", "key"),
    [
        (BOTH, OPENAI, "o"),
        ({"OPENAI_API_KEY": " ", "OPENROUTER_API_KEY": "r"}, OPENROUTER, "r"),
        ({}, OPENAI, ""),
    ],
    ids=["both", "one", "none"],
)
def test_a_name_without_an_endpoint_goes_where_there_is_a_key(environ, base_url, key):
    chosen = choose_model(config(name="m"), environ, lambda: "llama")

    assert (chosen.name, chosen.base_url, chosen.api_key) == ("m", base_url, key)


def test_a_written_key_stays_at_the_usual_endpoint():
    chosen = choose_model(config(name="m", api_key="k"), {"OPENROUTER_API_KEY": "r"}, lambda: None)

    assert (chosen.base_url, chosen.api_key) == (OPENAI, "k")


def test_then_the_keys_of_the_environment_in_order():
    both = choose_model(config(), BOTH, lambda: "llama")
    one = choose_model(config(), {"OPENAI_API_KEY": " ", "OPENROUTER_API_KEY": "r"}, lambda: "llama")

    assert str(both) == "gpt-5-mini at api.openai.com   because OPENAI_API_KEY is set; paid there"
    assert str(one) == "openai/gpt-5-mini at openrouter.ai   because OPENROUTER_API_KEY is set; paid there"
    assert "'o'" not in repr(both)


def test_then_an_ollama_then_practice():
    ollama = choose_model(config(), {}, lambda: "qwen3:8b")

    assert str(ollama).startswith("qwen3:8b at 127.0.0.1 (Ollama)")
    assert ollama.base_url == "http://127.0.0.1:11434/v1"
    assert str(choose_model(config(), {}, lambda: None)) == "practice   built-in demo, offline, not a real AI"


def test_practice_can_be_asked_for():
    assert choose_model(config(provider="practice"), BOTH, lambda: "llama").provider == "practice"


def test_the_gateway_itself_is_no_ollama():
    itself = Config.model_validate({"api": {"port": 11434}})

    assert choose_model(itself, {}, lambda: "llama").provider == "practice"


def test_what_a_session_stores_about_its_model_holds_no_secret():
    configured = config(name="m", base_url="https://ann:sesame@h:8080/v1?key=open", api_key="k", fallbacks=["n"])

    told = choose_model(configured, {}, lambda: None).describe(configured.model)

    assert told == {
        "provider": "openai",
        "name": "m",
        "base_url": "https://h:8080/v1",
        "fallbacks": ["n"],
        "context_window": 128_000,
        "max_output_tokens": 4096,
        "timeout_seconds": 300,
    }
