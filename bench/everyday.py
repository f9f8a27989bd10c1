"""Ten days of everyday talk of three people with the agent in one chat, and forty questions with the lines that answer them.

Written for this bench. A line is `name: text`, or `mark| name: text` where a question needs it; each day is a conversation of its own. The
questions are asked on the day after. Some share no rare word with their evidence, some name only a day.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

FIRST_DAY = datetime(2026, 5, 1, 8, tzinfo=UTC)  # a Friday
ASKED_AT = datetime(2026, 5, 11, 9, tzinfo=UTC)
AGENT = "agent"

_DAYS = (
    """
boiler| Mira: Morning. The boiler shows E4 again and there is only cold water.
agent: E4 usually means that the pressure is too low. Can you see the gauge?
Mira: It stands at 0.6 bar.
agent: Fill it up to about 1.5 bar, slowly, then restart it.
Mira: Done, warm again. Thanks!
tomato| Jonas: I put the tomato plants out on the balcony today, six of them.
agent: Nice! A few things help tomato plants on a balcony: give them a large pot each, water them in the morning and never on the leaves, tie them to a stick as soon as they lean, pinch out the side shoots every week, and feed them from the day the first flowers open. If a night is forecast below ten degrees, cover them or take them in. How many people will eat from them in July?
cousin| Petra: My cousin Ilse comes to stay with us from the 15th, for four nights.
agent: Good to know. Shall I think of anything for her visit?
Petra: She does not eat fish, that is all.
Jonas: Who does the shopping this week?
shopping| Mira: I went last week, so it is your turn, Jonas.
Jonas: Fine. Write me a list, somebody.
agent: Milk, rice, onions and dishwasher tablets were mentioned so far.
""",
    """
Jonas: Rain all day. I stay in and read.
book| Jonas: The novel that Petra lent me is great, the one about the lighthouse keeper.
agent: Which part do you like best?
Jonas: The winter chapters. No spoilers please.
bike| Petra: Somebody stole the saddle of my bike at the station. Only the saddle!
agent: How annoying. Thieves at a station usually take what comes off without a tool: lights, bags, a saddle with a quick release, at times a wheel. A bolt instead of the quick release costs a few euros, a chain through the rails of the saddle does the same, and a photo of the bike helps with the insurance. Report it to the police if the insurance is to pay; they give you a number for it.
Petra: I need a new one by Wednesday, I ride to work.
Mira: There is an old one in the cellar, take it.
agent: Then Petra is fine for now.
soup| Mira: I made lentil soup for everyone, it is on the stove. Needs more salt.
Jonas: It was perfect as it was.
deposit| Petra: The landlord finally sent back 240 of the 900 euros. The rest comes in June, he says.
agent: I would keep his message.
""",
    """
run| Jonas: I ran eleven kilometres this morning. My left knee did not like it.
agent: A knee that hurts after a long run is mostly tired, not broken. Rest it for two days, ice it tonight for ten minutes, and when you run again, run half as far and slower, on soft ground. If it is swollen tomorrow, or hurts on stairs next week, have it looked at. Old shoes are a common reason as well: how many kilometres have yours done, and how far did you want to go this month?
Mira: You always overdo it on Sundays.
Jonas: Guilty.
call| Mira: Mum called. She wants to move the family dinner from the 9th to the 23rd.
agent: I will keep in mind that it moved.
Petra: Can I come along? I liked her apple cake.
Mira: Of course, she asks for you every time.
plants| Petra: The leaves of the lemon tree turn yellow. Too much water?
agent: Yellow leaves on a lemon tree have three common reasons: too much water, too little iron, or cold feet. Look at the veins: if they stay green while the leaf turns yellow, it is the iron. If the whole leaf turns, give less water for a week and put the pot on a piece of wood. What is the matter can also be a pot that has become too small; when was it last repotted?
Petra: I give it less for a week then.
film| Petra: We watched that film about the chess player. I fell asleep halfway.
Jonas: You snored, too.
""",
    """
interview| Mira: Today is my interview at the planetarium. I am so nervous.
agent: You have prepared for it, and being nervous shows that it matters to you. Three things that help on the day: eat something, be there ten minutes early, and have one question of your own ready about the job, the hours or the people. When they ask why you want to leave your old boss, say what you are looking for, not what you want to get away from. What do they do there that you like most?
Mira: The programmes for schools.
agent: Then begin with that.
got| Mira: They took me! I start on the first of July, thirty hours a week.
Jonas: Congratulations! Cake tonight.
Petra: Wonderful! I bring bubbles.
agent: Congratulations, Mira.
cake| Jonas: The bakery was out of everything, so it is doughnuts.
washer| Petra: The washing machine leaks. There is a puddle below the left corner.
agent: When there is water on the floor near a washing machine, it is one of four things in nearly all cases: the flap of the filter does not close, the seal of the door is torn, the hose behind the machine is loose, or too much soap makes it foam over. Look at the flap first, it is at the bottom and often does not close well. Switch the machine off before you open it, and have a towel ready.
Petra: It was a sock in the filter. All dry now.
quit| Mira: I told my old boss. He was kinder than I thought.
""",
    """
Petra: Good morning, what is the weather like?
agent: I cannot see that. The forecast was for sun.
allergy| Petra: The doctor says that it is birch pollen. I got a nasal spray, twice a day.
agent: Let me know if it makes you sleepy.
vet| Jonas: Took the cat to the vet. Mogli weighs 6.2 kilos and has to lose one of them.
agent: For a cat that is too heavy the rule is slow and steady: weigh the food, cut a tenth of it, no snacks from the table, and ten minutes of play before each meal. Weigh the cat every second week on the kitchen scale or with you on the big one. A cat must not lose more than one or two per cent of its weight in a week, and never stop eating for a day. Dry food from a puzzle makes meals longer.
Mira: He will hate us.
Jonas: The special food costs 38 euros a bag.
train| Mira: My train on Saturday leaves at 7:52 from platform 9, do not let me oversleep.
agent: Set an alarm for six, and one more.
Mira: Two more.
guitar| Jonas: I sold the old guitar to a student for 120. Feels odd to see it go.
agent: It will be played again.
pasta| Petra: Tonight I cook, the pasta with walnuts.
""",
    """
meter| Petra: The man for the electricity meter was here. It says 48213.
agent: Shall we compare it with last year? A flat for three people uses between two and four thousand kilowatt hours a year; an electric boiler for hot water makes it more. What the meter says today minus what it said a year ago is what you used, and the bill should say the same. If you pay too much every month, you may ask them for a lower amount with the figure of today.
Petra: Last year it was 45100, I think.
dentist| Jonas: I moved my dentist from Thursday to the 19th, half past eight.
agent: Noted in this chat, at least.
Mira: Coward.
Jonas: The dentist is at a congress!
key| Mira: I left my key at my sister's. Can somebody be home at six?
Petra: I am home from five on.
agent: Then Petra lets Mira in.
neighbour| Petra: The neighbour below complained about our drums. Jonas?
Jonas: It was the radio. I do not even own drums.
quiet| Petra: We agreed with her on no loud music after nine.
agent: A fair rule.
""",
    """
Mira: Anyone awake?
Jonas: Unfortunately.
sleep| Jonas: I slept three hours. The foxes were screaming behind the house again.
agent: Three hours is not much. Foxes are loud in spring and quieter from June on; closing the window on that side, earplugs or a fan may help until they move on. If you are so tired tomorrow that you make mistakes at work, a nap of twenty minutes before three o'clock is better than a long one, and no coffee after lunch. What kept you up otherwise: heat, light, thoughts?
present| Mira: For Petra's birthday I thought of the blue teapot from the pottery market. Do not tell her.
Jonas: Good. I pay half.
agent: My lips are sealed.
wifi| Jonas: I changed the wifi, the network is called Otterbox now. The password is on the fridge.
agent: Good that it is not here.
salad| Mira: I tried beetroot with orange. Nobody should do that.
insurance| Petra: The insurance pays for the broken window, apart from 150 that we pay ourselves.
agent: Good. What the insurance does not pay is usually the part that you agreed to carry yourselves. Keep a photo of the broken window, the bill of the glazier, and the letter with the number of the claim; they want all three before they pay. A glazier comes within two weeks as a rule; measure the window before you call, and ask what day and what time it will be. Is the glazier booked?
glazier| Petra: He comes on the 13th in the morning.
""",
    """
market| Petra: At the market I found a chair for the hall, green, for 25 euros.
agent: That sounds like a good price.
Jonas: It wobbles.
Petra: Everything wobbles in this flat.
course| Jonas: I signed up for the pottery course, Tuesdays in autumn, ten evenings.
agent: How lovely. In a pottery course the first evenings are mostly about centring the clay, and everything wobbles then; nobody leaves with a teapot. Wear old clothes, cut your nails, and bring a towel. Glazing comes at the end, since every piece is fired twice. Is it on a weekday evening, and what does it cost? And what do you want to make first?
Jonas: A bowl that does not wobble.
mood| Mira: I feel low today, for no reason at all.
agent: That happens. Is there anything that usually helps?
Mira: Swimming, mostly.
swim| Mira: I went to the lake. Fourteen degrees! I lasted five minutes and feel like new.
agent: Brave.
bulb| Jonas: The lamp in the bathroom needs one with a small thread, E14. We have only big ones.
""",
    """
away| Mira: On the train now, with coffee. Back tomorrow night.
Jonas: Greetings to Graz!
grandpa| Mira: Grandpa is ninety today. He still beats everyone at cards.
agent: Give him our best.
Petra: Give him a hug from me.
compost| Petra: I emptied the compost. There were mice. I repeat, mice.
agent: A lid with a lock keeps them out.
Jonas: Mogli to the rescue.
pizza| Jonas: Two of us tonight, so I ordered pizza, one with capers.
Petra: Capers are a crime.
tax| Petra: The tax people want the receipts for the desk until the end of the month.
agent: The tax office accepts receipts as photos, too. For a desk they want to see the price, the date, the name of the shop and that it was paid; a bank statement alone is not enough. If you want more time, write to the office before the end of the month and ask for four more weeks; that is nearly always granted. Put the whole of it into one file with a list in front. Do you know where they are?
Petra: In the shoebox. Probably.
""",
    """
Petra: Slow Sunday.
agent: Enjoy it.
hike| Jonas: We walked up to the old quarry and saw a kingfisher.
Petra: Two of them.
shoes| Petra: My boots are done for, the sole came off on the way down.
agent: A cobbler may save them.
back| Mira: I am back. The train was an hour late because of a tree on the line.
Jonas: There is soup in the fridge.
plan| Petra: Let us paint the hall on the long weekend. Yellow?
Mira: A pale one.
agent: How many square metres is it?
Jonas: About twenty, with the ceiling.
""",
)

QUESTIONS: Sequence[tuple[str, str]] = (
    ("what was wrong with the heating when we had no hot water?", "boiler"),
    ("how many tomato plants are on the balcony?", "tomato"),
    ("who comes to visit us, and for how long?", "cousin"),
    ("whose turn is it to buy groceries?", "shopping"),
    ("which book did Petra lend to Jonas?", "book"),
    ("what was stolen from the bike?", "bike"),
    ("how much of the deposit did the landlord pay back?", "deposit"),
    ("how far did Jonas run, and what hurt?", "run"),
    ("to which date did Mum move the family dinner?", "call"),
    ("what is the matter with the lemon tree?", "plants"),
    ("when does Mira start her new job, and for how many hours?", "got"),
    ("how did Mira's boss take it that she leaves?", "quit"),
    ("why was there water on the floor near the washing machine?", "washer"),
    ("what is Petra allergic to?", "allergy"),
    ("how heavy is the cat?", "vet"),
    ("from which platform did Mira's train leave?", "train"),
    ("what did Jonas get for the guitar?", "guitar"),
    ("what did the electricity meter say?", "meter"),
    ("when is the dentist?", "dentist"),
    ("until when may we play loud music?", "quiet"),
    ("why was Jonas so tired, what kept him up?", "sleep"),
    ("what do we give Petra for her birthday?", "present"),
    ("what is the wifi called now?", "wifi"),
    ("what does the insurance not pay of the window?", "insurance"),
    ("on what day does the glazier come?", "glazier"),
    ("what did the green chair cost?", "market"),
    ("on which weekday is the pottery course?", "course"),
    ("which bulb does the bathroom need?", "bulb"),
    ("how cold was the lake?", "swim"),
    ("how old is grandpa now?", "grandpa"),
    ("what does the tax office want from Petra?", "tax"),
    ("what bird did we see at the quarry?", "hike"),
    ("what was that on 4 May?", "interview"),
    ("what did we have for dinner last Tuesday?", "pasta"),
    ("what happened to Petra on Saturday the 2nd of May?", "bike"),
    ("what did Mira forget on 2026-05-06?", "key"),
    ("what did we talk about the day before yesterday?", "grandpa"),
    ("and what happened yesterday?", "shoes"),
    ("how was it last Friday?", "mood"),
    ("what did Mira try out in the kitchen on Thursday, 7 May?", "salad"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """`id`: the mark of the line, or its number."""

    id: str
    name: str
    text: str
    at: int


def days() -> Iterator[list[Line]]:
    """Yields the lines of each day, in order."""
    for number, day in enumerate(_DAYS):
        began = FIRST_DAY + timedelta(days=number)
        lines: list[Line] = []
        for place, said in enumerate(day.strip().splitlines()):
            mark, _, rest = said.rpartition("| ")
            name, _, text = rest.partition(": ")
            at = int((began + timedelta(minutes=41 * place)).timestamp() * 1000)
            lines.append(Line(mark or f"{number}.{place}", name, text, at))
        yield lines
