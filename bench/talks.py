"""Conversations written for the benchmark of recall: the same facts in four languages.

Each fact is something that a user once said, with a question that asks for it later, in the words
of somebody who remembers what it was about. Between the facts stands small talk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Talk(NamedTuple):
    """A language: facts with their questions, and small talk with a place for a number."""

    language: str
    facts: Sequence[tuple[str, str]]
    small: Sequence[str]


ENGLISH = Talk(
    "English",
    (
        ("My sister Clara lives in Lyon and repairs violins.", "What does my sister repair?"),
        ("I am allergic to hazelnuts, even to traces.", "Which nuts am I allergic to?"),
        ("Our boiler was replaced by the company Thermo Nord.", "Who replaced our boiler?"),
        ("The wifi password of the cabin is blue-heron-42.", "What is the wifi password?"),
        ("My passport expires in November.", "When does my passport expire?"),
        ("The cat's vet is Doctor Amari in Mill Street.", "Which vet does the cat have?"),
        ("I parked the car on deck five, row G.", "Where did I park the car?"),
        ("Grandmother was born in Trieste.", "Where was my grandmother born?"),
        ("The tenants pay 940 euros of rent.", "How much rent do the tenants pay?"),
        ("My marathon time was three hours and fifty minutes.", "What was my marathon time?"),
        ("The piano tuner comes on Thursday at nine.", "When does the piano tuner come?"),
        ("I keep the spare key under the lavender pot.", "Where is the spare key?"),
    ),
    (
        "Good morning, how is the weather in week {}?",
        "I watched a film yesterday, number {} on my list.",
        "Please shorten paragraph {} of my letter.",
        "Thanks, that was helpful. Next is point {}.",
        "What could I cook tonight? Idea {} did not please anybody.",
    ),
)
GERMAN = Talk(
    "German",
    (
        (
            "Meine Schwester Clara wohnt in Lyon und repariert Geigen.",
            "Was repariert meine Schwester?",
        ),
        ("Ich bin gegen Haselnüsse allergisch.", "Gegen welche Nüsse bin ich allergisch?"),
        ("Unsere Heizung hat die Firma Thermo Nord ersetzt.", "Wer hat unsere Heizung ersetzt?"),
        ("Das WLAN-Passwort der Hütte ist blaureiher-42.", "Wie ist das WLAN-Passwort?"),
        ("Mein Reisepass läuft im November ab.", "Wann läuft mein Reisepass ab?"),
        ("Der Tierarzt der Katze ist Doktor Amari.", "Welchen Tierarzt hat die Katze?"),
        ("Ich habe das Auto auf Deck fünf geparkt, Reihe G.", "Wo habe ich das Auto geparkt?"),
        ("Großmutter ist in Triest geboren.", "Wo ist meine Großmutter geboren?"),
        ("Die Mieter zahlen 940 Euro Miete.", "Wie viel Miete zahlen die Mieter?"),
        ("Meine Marathonzeit war drei Stunden fünfzig.", "Wie war meine Marathonzeit?"),
        ("Der Klavierstimmer kommt am Donnerstag um neun.", "Wann kommt der Klavierstimmer?"),
        ("Der Ersatzschlüssel liegt unter dem Lavendel.", "Wo liegt der Ersatzschlüssel?"),
    ),
    (
        "Guten Morgen, wie wird das Wetter in Woche {}?",
        "Gestern sah ich einen Film, Nummer {} meiner Liste.",
        "Bitte kürze Absatz {} meines Briefes.",
        "Danke, das war hilfreich. Weiter mit Punkt {}.",
        "Was könnte ich heute kochen? Idee {} gefiel niemandem.",
    ),
)
CHINESE = Talk(
    "Chinese",
    (
        ("我的姐姐克拉拉住在里昂,她修理小提琴。", "我的姐姐修理什么?"),
        ("我对榛子过敏,一点也不能吃。", "我对什么过敏?"),
        ("我们的锅炉是北方热力公司更换的。", "锅炉是谁更换的?"),
        ("小屋的无线密码是 blue-heron-42。", "无线密码是什么?"),
        ("我的护照十一月到期。", "我的护照什么时候到期?"),
        ("猫的兽医是磨坊街的阿马里医生。", "猫的兽医是谁?"),
        ("我把车停在五层G排。", "我把车停在哪里?"),
        ("外婆出生在的里雅斯特。", "外婆出生在哪里?"),
        ("房客每月付九百四十欧元房租。", "房客付多少房租?"),
        ("我的马拉松成绩是三小时五十分。", "我的马拉松成绩是多少?"),
        ("钢琴调音师星期四九点来。", "调音师什么时候来?"),
        ("备用钥匙放在薰衣草花盆下面。", "备用钥匙放在哪里?"),
    ),
    (
        "早上好,第{}周的天气怎么样?",
        "昨天我看了一部电影,是清单上的第{}部。",
        "请缩短我的信的第{}段。",
        "谢谢,很有帮助。接下来是第{}点。",
        "今晚可以做什么菜?第{}个主意大家都不喜欢。",
    ),
)
JAPANESE = Talk(
    "Japanese",
    (
        ("姉のクララはリヨンに住んでいて、バイオリンを修理します。", "姉は何を修理しますか?"),
        ("私はヘーゼルナッツのアレルギーがあります。", "私は何のアレルギーがありますか?"),
        ("うちのボイラーは北方熱工業が交換しました。", "ボイラーは誰が交換しましたか?"),
        ("山小屋の無線のパスワードは blue-heron-42 です。", "無線のパスワードは何ですか?"),
        ("私のパスポートは十一月に切れます。", "パスポートはいつ切れますか?"),
        ("猫の獣医はアマリ先生です。", "猫の獣医は誰ですか?"),
        ("車は五階のG列に停めました。", "車はどこに停めましたか?"),
        ("祖母はトリエステで生まれました。", "祖母はどこで生まれましたか?"),
        ("借家人は家賃を九百四十ユーロ払います。", "借家人は家賃をいくら払いますか?"),
        ("私のマラソンの記録は三時間五十分です。", "マラソンの記録は何ですか?"),
        ("ピアノの調律師は木曜日の九時に来ます。", "調律師はいつ来ますか?"),
        ("合鍵はラベンダーの鉢の下にあります。", "合鍵はどこにありますか?"),
    ),
    (
        "おはようございます。第{}週の天気はどうですか。",
        "昨日映画を見ました。リストの{}番です。",
        "手紙の第{}段落を短くしてください。",
        "ありがとう、助かりました。次は{}番です。",
        "今夜は何を作りましょうか。{}番の案は人気がありませんでした。",
    ),
)
TALKS = (ENGLISH, GERMAN, CHINESE, JAPANESE)
