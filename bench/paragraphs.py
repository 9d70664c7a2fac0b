"""Texts never counted before: paragraphs of English, each with a unique number."""

from itertools import count

PARAGRAPHS = 8
TOKENS = 2_000  # of all of them together, about

_SENTENCES = (
    "Parcels that were ordered before noon leave the warehouse on the same working day, and the "
    "carrier sends a link by which every later step can be followed.",
    "If nothing has moved for three days, we ask the carrier to look for the parcel, and tell the "
    "customer what they answer, whether or not it is good news.",
    "A refund is made to the means of payment that was used, within five days of the moment at "
    "which the returned goods were counted and found to be complete.",
    "Customers of the gold plan may call at any hour; everybody else is asked to write, and is "
    "given an answer by a person, not by a machine, before the end of the next day.",
    "Goods that were damaged on the way are replaced without any question if a photograph is sent "
    "within a week, and otherwise after a look at what the driver wrote down.",
    "Prices on the page are those of the moment: an order keeps the price that it was made at, "
    "even where the same thing costs less, or more, on the day on which it is sent.",
    "An address can be changed until the label is printed, which is usually two hours after the "
    "order, and from then on only by the carrier, who may ask for a fee of 4.50 EUR.",
    "What the customer wrote in an earlier conversation is shown beside this text, oldest first, "
    "so that nobody has to tell the same story (order number, date, address) twice.",
)

_numbers = count()


def paragraphs() -> list[str]:
    """Return paragraphs that differ from all earlier ones."""
    number = next(_numbers)
    return [f"Note {number}-{n}. {text}" for n, text in enumerate(_PARAGRAPHS)]


_PARAGRAPHS = tuple(
    " ".join(_SENTENCES[(n + step) % len(_SENTENCES)] for step in range(7))
    for n in range(PARAGRAPHS)
)
