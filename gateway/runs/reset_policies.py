"""Finds the reset policy of a session key in the configuration. Whether a session with this policy is due, `sessions/policy.py` decides;
`gateway/scheduler/resets.py` ticks and `sessions/resets.py` carries out.
"""

from functools import lru_cache

from sessions.keys import InvalidKey, SessionKey
from sessions.policy import Override, ResetMode, ResetPolicy, ResetRules, policy_for
from sessions.runs import Opening

NEVER = ResetPolicy(mode=ResetMode.NONE)


class ResetPolicies:
    """The reset rules in force. `says_farewell`: whether the agent has the tools to save something before a reset. `rule`
    returns the policy of a session key, and the override that it comes from.
    """

    def __init__(self, rules: ResetRules, *, says_farewell: bool = True) -> None:
        self.rules = rules
        self.version = 0
        self.says_farewell = says_farewell
        self.rule = lru_cache(maxsize=10_000)(self._find)

    def replace(self, rules: ResetRules, *, says_farewell: bool) -> None:
        """Applies these rules from now on, also to sessions that are open."""
        self.says_farewell = says_farewell
        if rules != self.rules:
            self.rules = rules
            self.version += 1
            self.rule.cache_clear()

    def _find(self, session_key: str) -> tuple[ResetPolicy, Override | None]:
        try:
            key = SessionKey.parse(session_key)
        except InvalidKey:
            return NEVER, None
        return policy_for(key, self.rules.default, self.rules.overrides)

    def policy(self, session_key: str) -> ResetPolicy:
        return self.rule(session_key)[0]

    def opening(self, session_key: str) -> Opening:
        """Returns how a message of this key opens a session."""
        policy = self.policy(session_key)
        return Opening(reset=None if policy.mode is ResetMode.NONE else policy, farewell=self.says_farewell)
