"""Sixty facts as people tell them in passing, and how somebody asks for each months later; and ordinary chat to hide them in.

`asked_as` is what a fold would write beside the note: questions in other words than the fact. It is never the question that is asked here.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class QuestionKind(StrEnum):
    """How a question is put."""

    RARE = "rare words"
    COMMON = "common words"
    PARAPHRASE = "paraphrases"


@dataclass(frozen=True, slots=True)
class Fact:
    way: QuestionKind
    said: str
    question: str
    asked_as: tuple[str, ...] = ()
    note: str = ""


def _rare(said: str, question: str) -> Fact:
    return Fact(QuestionKind.RARE, said, question, note=said)


def _common(said: str, question: str) -> Fact:
    return Fact(QuestionKind.COMMON, said, question, note=said)


def _paraphrase(said: str, question: str, *asked_as: str) -> Fact:
    return Fact(QuestionKind.PARAPHRASE, said, question, asked_as, note=said)


FACTS: Sequence[Fact] = (
    _rare(
        "Our landlord is called Mr. Okonkwo and he hates drilling on Sundays.", "What is it with Okonkwo and drilling?"
    ),
    _rare("The spare key hangs behind the thermostat in the hallway.", "Is something behind the thermostat?"),
    _rare("Grandma's sourdough starter is called Bartholomew.", "Who or what is Bartholomew?"),
    _rare("We set the kiln to 1240 degrees for the celadon glaze.", "How hot for celadon?"),
    _rare("The invoice from Vexler came to 318 euros.", "How much did Vexler charge?"),
    _rare("Tomas plays the theremin in a quartet.", "Who plays the theremin?"),
    _rare("My passport has to be renewed at the consulate in Ljubljana.", "What do I have to do in Ljubljana?"),
    _rare("The ferret is allergic to chlorhexidine.", "Can the ferret have chlorhexidine?"),
    _rare("We named the staging server quokka.", "What did we name quokka?"),
    _rare("Ines defended her thesis about lichen in Trondheim.", "What was Ines' lichen thesis, and where?"),
    _rare("The recipe wants two pinches of asafoetida.", "How much asafoetida goes in?"),
    _rare("The router's admin page only works in Falkon.", "Which page needs Falkon?"),
    _rare("Uncle Bjarne restores old harmoniums.", "What does Bjarne restore?"),
    _rare("The hiking hut at Gimmelwald takes cash only.", "Does Gimmelwald take cards?"),
    _rare("I have to take levothyroxine before breakfast.", "When do I take levothyroxine?"),
    _rare("The piano tuner, Mrs. Szymborska, comes every October.", "When does Szymborska come?"),
    _rare("Our bees belong to the Buckfast strain.", "What about Buckfast?"),
    _rare("The cellar flooded because of the sump pump's capacitor.", "What was wrong with the capacitor?"),
    _rare("We buy coffee from a roastery called Nordlicht.", "What do we get from Nordlicht?"),
    _rare("The tandem's rear derailleur is a Rohloff.", "What is the Rohloff on?"),
    _common("The code for the garage is 4711.", "what was the code of the garage"),
    _common("The meeting with the bank moved to Thursday at nine.", "when is the meeting with the bank"),
    _common("Our new team lead starts in August.", "when does the new team lead start"),
    _common("The car goes to the workshop on the 14th.", "when does the car go to the workshop"),
    _common("I paid the rent for the office twice in March.", "what happened with the rent of the office"),
    _common("The train to Mum leaves from platform six.", "from which platform does the train to Mum leave"),
    _common("We decided to move the release to the end of June.", "to when did we move the release"),
    _common("The birthday dinner is for twelve people.", "for how many people is the birthday dinner"),
    _common("The school trip costs 85 euros.", "what does the school trip cost"),
    _common("The holiday house has three rooms and no washing machine.", "how many rooms does the holiday house have"),
    _common("My sister works nights until Christmas.", "until when does my sister work nights"),
    _common("The test server gets deleted every weekend.", "when does the test server get deleted"),
    _common(
        "The customer in Bern wants the report in French.",
        "in which language does the customer in Bern want the report",
    ),
    _common("The dentist said the left side has to be done again.", "which side did the dentist want to do again"),
    _common("The small budget for travel is 900 a year.", "how large is the travel budget for a year"),
    _common("The kitchen light needs a new switch, not a new lamp.", "what does the kitchen light need"),
    _common("The neighbours feed the cat while we are away.", "who feeds the cat while we are away"),
    _common("The backup runs at two in the morning.", "at what time does the backup run"),
    _common(
        "The doctor wants to see my father again in six weeks.", "when does the doctor want to see my father again"
    ),
    _common("The garden door sticks when it rains.", "when does the garden door stick"),
    _paraphrase(
        "We ripped out Redis because prices were stale.",
        "why is there no cache any more?",
        "what happened to the caching layer?",
        "who removed the in-memory store, and why?",
    ),
    _paraphrase("I gave up meat two years ago.", "am I a vegetarian?", "what do I not eat?", "which diet do I follow?"),
    _paraphrase(
        "Paula and I split up in spring.",
        "is there a girlfriend at the moment?",
        "am I single?",
        "did the relationship with my girlfriend end?",
    ),
    _paraphrase(
        "My boss is moving me to the Lisbon branch.",
        "where am I going to be transferred?",
        "which city will I work in next?",
        "is a transfer abroad planned?",
    ),
    _paraphrase(
        "I cannot stand loud restaurants.",
        "where should we not book a table for me?",
        "do I mind noise when eating out?",
        "what kind of place do I dislike for dinner?",
    ),
    _paraphrase(
        "Everything now runs in one process, no more microservices.",
        "what is our current architecture?",
        "is the system a monolith?",
        "did the architecture change?",
    ),
    _paraphrase(
        "Leo broke his leg skiing.",
        "which injury does my son have?",
        "what accident did my son have?",
        "who was hurt on the slopes?",
    ),
    _paraphrase(
        "I am saving up for an electric bike.",
        "what big purchase is planned?",
        "what do I want to buy?",
        "which purchase am I putting money aside for?",
    ),
    _paraphrase(
        "The flat gets handed over on the first of May.",
        "from what day can we move in?",
        "when is moving day?",
        "when do we get the keys to move?",
    ),
    _paraphrase(
        "Strong light gives me headaches.",
        "what triggers my migraines?",
        "what causes a migraine for me?",
        "to what am I sensitive?",
    ),
    _paraphrase(
        "We went back to REST after the GraphQL trial.",
        "which API style is used today?",
        "what API technology do we use?",
        "did the new query language survive?",
    ),
    _paraphrase(
        "My wife swims for an hour before work.",
        "which sport does my partner do?",
        "what sport does my spouse practise?",
        "how does she keep fit?",
    ),
    _paraphrase(
        "The old Volvo was sold to a collector.",
        "what vehicle do we no longer own?",
        "do we still own a vehicle?",
        "which car is gone?",
    ),
    _paraphrase(
        "I only answer mails after lunch.",
        "what time of day am I reachable in writing?",
        "when am I reachable?",
        "at which time do I reply to messages?",
    ),
    _paraphrase(
        "Our twins turn four in November.",
        "how old are the children?",
        "what is the children's age?",
        "when is the kids' birthday?",
    ),
    _paraphrase(
        "Deploys are forbidden on Fridays.",
        "which weekday is frozen for shipping?",
        "when must we not ship?",
        "is there a release freeze?",
    ),
    _paraphrase(
        "I grew up on a farm near Cork.",
        "what is my country of origin?",
        "am I from Ireland?",
        "where did I spend my childhood?",
    ),
    _paraphrase(
        "Heights make me dizzy.",
        "is a rope course a good idea for me?",
        "do I have vertigo?",
        "what am I afraid of, a rope bridge?",
    ),
    _paraphrase(
        "The insurance covers the whole roof.",
        "who pays for the storm damage?",
        "is the storm damage paid for?",
        "do we have to pay the repair ourselves?",
    ),
    _paraphrase(
        "I read the paper on my tablet these days.",
        "was the printed subscription cancelled?",
        "do I still get a printed newspaper?",
        "how do I follow the news?",
    ),
)

_OPENINGS = ("So,", "By the way,", "Well,", "Hm,", "Okay,", "You know,", "Right,", "Anyway,", "", "", "", "")
_WHO = (
    "my sister",
    "the team",
    "our customer",
    "the neighbours",
    "my boss",
    "the doctor",
    "the school",
    "Mum",
    "the bank",
    "a friend",
    "the landlord",
    "the new colleague",
)
_DOES = (
    "wants to talk about",
    "asked again about",
    "has no idea about",
    "sent a long mail about",
    "is happy with",
    "complained about",
    "forgot about",
    "will call about",
    "sent pictures of",
    "likes",
)
_WHAT = (
    "the meeting",
    "the report",
    "the garden",
    "the car",
    "dinner",
    "the holiday",
    "the train",
    "the release",
    "the kitchen",
    "the test server",
    "the weekend",
    "the budget",
    "the code",
    "the birthday",
    "the office",
    "the trip",
)
_WHEN = (
    "today",
    "this morning",
    "on Monday",
    "next week",
    "for the third time",
    "after lunch",
    "again",
    "in the evening",
    "as always",
    "before the holiday",
)
_ANSWERS = (
    "I see. Shall I write that down as a task?",
    "That sounds good.",
    "Then let us look at it when you are back.",
    "I can draft an answer to that.",
    "Good to know.",
    "What would you like to do about it?",
    "All right, tell me when it changes.",
    "I would wait for the answer first.",
)


def ordinary_chat(messages: int, facts: Sequence[Fact] = FACTS, *, seed: int = 11) -> list[str]:
    """User and agent in turn, no two messages of the user alike, the facts at random places among those of the user."""
    rng = random.Random(seed)
    said: dict[str, None] = {}
    while len(said) < messages // 2 - len(facts):
        text = f"{rng.choice(_OPENINGS)} {rng.choice(_WHO)} {rng.choice(_DOES)} {rng.choice(_WHAT)} {rng.choice(_WHEN)}"
        said[f"{text.strip()}, and {rng.choice(_WHO)} {rng.choice(_DOES)} {rng.choice(_WHAT)}."] = None
    mine = [*said, *(fact.said for fact in facts)]
    rng.shuffle(mine)
    return [text for each in mine for text in (each, rng.choice(_ANSWERS))]
