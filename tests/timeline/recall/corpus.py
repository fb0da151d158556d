"""A conversation of two friends, with what one of them asked a shop, for questions about it."""

from __future__ import annotations

from datetime import date

# Who, when, what.
SAID: list[tuple[str, date | None, str]] = [
    (
        "Nora",
        date(2023, 5, 8),
        "Hi Tomas! I finally adopted a dog last weekend. He is called Biscuit.",
    ),
    ("Tomas", date(2023, 5, 8), "Lovely! I always wanted a pet, but the landlord forbids animals."),
    ("Nora", date(2023, 5, 8), "He sleeps all day and barks at the postman."),
    ("Tomas", date(2023, 5, 8), "Same as my brother, then. How is your new job?"),
    ("Nora", date(2023, 5, 8), "Busy. I started as a nurse in the children's hospital on Monday."),
    ("Tomas", date(2023, 5, 25), "I went hiking near Innsbruck and lost my phone on the trail."),
    ("Nora", date(2023, 5, 25), "Oh no! Did you find it again?"),
    ("Tomas", date(2023, 5, 25), "A shepherd brought it to the hut. I owe him a beer."),
    ("Nora", date(2023, 6, 9), "My sister marries in September, and I am her bridesmaid."),
    ("Tomas", date(2023, 6, 9), "Do you have to give a speech?"),
    ("Nora", date(2023, 6, 9), "Yes, and I am terrified. I practise in front of Biscuit."),
    ("Tomas", date(2023, 6, 9), "Dogs are a patient audience."),
    ("Nora", date(2023, 7, 3), "I painted the kitchen yellow. The landlady was not amused."),
    ("Tomas", date(2023, 7, 3), "Bold. I am learning the cello, and my neighbours suffer."),
    ("Nora", date(2023, 7, 3), "How long do you practise each evening?"),
    ("Tomas", date(2023, 7, 3), "Half an hour. The teacher says my bowing is hopeless."),
    (
        "Nora",
        date(2023, 8, 14),
        "The order HAT023 never came. The shop says parcel 77120934 is lost.",
    ),
    ("Tomas", date(2023, 8, 14), "Write to claims@parcel-desk.example and name mia_li_3668."),
    ("Nora", date(2023, 8, 14), "Who is that?"),
    ("Tomas", date(2023, 8, 14), "The clerk who refunded me when HAT019 was late."),
    (
        "Nora",
        date(2023, 9, 2),
        "The wedding was wonderful. My speech made everybody cry, in a good way.",
    ),
    ("Tomas", date(2023, 9, 2), "I knew it! Did Biscuit attend the ceremony?"),
    ("Nora", date(2023, 9, 2), "He carried the rings and ate a corner of the cake."),
    ("Tomas", date(2023, 9, 20), "My cello recital is on 2023-10-14 in the old town hall."),
    ("Nora", date(2023, 9, 20), "I will bring flowers and ear plugs."),
    ("Tomas", date(2023, 10, 16), "The recital went fine; I only dropped the bow once."),
    ("Nora", date(2023, 10, 16), "Your vibrato was touching. What did your parents think?"),
    ("Tomas", date(2023, 10, 16), "Mother cried, father filmed the ceiling."),
    ("Nora", date(2023, 11, 5), "Biscuit broke a leg on the ice. The vet charged 480 euros."),
    ("Tomas", date(2023, 11, 5), "Poor fellow. Is he insured?"),
    ("Nora", None, "No, but I am paying it in three instalments."),
    ("Tomas", date(2023, 12, 24), "Merry Christmas! I booked flights to Lisbon in March."),
    ("Nora", date(2023, 12, 24), "我们春天去里斯本旅行,住在海边的旅馆。"),
    (
        "Tomas",
        date(2024, 1, 10),
        "Ich habe die Wohnung in der Gartenstraße gekündigt und ziehe um.",
    ),
    ("Nora", date(2024, 1, 10), "来月は京都で友達と会います。"),
    ("Tomas", date(2024, 2, 2), "The new flat has a balcony; the movers broke my mirror."),
    ("Nora", date(2024, 2, 2), "Seven years of bad luck, as they say. Café tomorrow?"),
    ("Tomas", date(2024, 3, 18), "Back from Lisbon. The custard tarts alone were worth the fare."),
    ("Nora", date(2024, 3, 18), "I may change wards: the night shifts exhaust me."),
    ("Tomas", date(2024, 3, 18), "Tell the head physician. You look after everyone but yourself."),
]

QUESTIONS = [
    "What is the name of Nora's pet?",
    "Where does Nora work, and what is her profession?",
    "What happened to order HAT023?",
    "Who is mia_li_3668?",
    "How much did the animal doctor cost?",
    "What musical instrument does Tomas play?",
    "What did Tomas do in May 2023?",
    "What happened on 2 September?",
    "When did the puppy hurt itself?",
    "旅馆在哪里?",
    "Wann ist die Wohnung gekündigt worden?",
    "京都で誰と会いますか",
    "2023-10-14",
    "Did they travel in March?",
    "the and of",
    "",
]
