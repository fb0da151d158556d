"""Phrases: what only frames a question, what a user wants for good, and what asks for an answer.

Pure lists for English, German, French, Spanish, Chinese and Japanese; a text in another language
matches none of them and loses nothing.
"""

from __future__ import annotations

import re

from muntin.timeline.recall.words import words

# Of a longer text only the beginning is searched for a wish.
_MOST = 2_000

# Words that frame a question and are rarely what it is about. None of them is an English word with
# a meaning of its own, such as the German "hat" and "war".
_FRAMES = """
    according across answer aspect aspects based bring brought considering conversation
    conversations describe described different discuss discussed ever exactly example examples
    explain five four item items kind kinds likely list many mention mentioned mentions might mind
    mostly much one order ordered regarding related said say says seven six sort sorts specific
    specifically suggest suggested talk talked tell thing things three throughout told two type
    types us various walk way ways yes

    wann welche welcher welches welchen warum wie wieso wo wohin woher worüber wer wem wen haben
    hatte hatten hattest ist sind wurde wurden worden gesagt sagte sagtest erwähnt erwähnte
    erwähnten gesprochen besprochen genannt nannte nenne erzählt beschreibe beschreiben beispiel
    beispiele dinge sachen sorten liste unterhaltung gespräch gesprächs bitte genau eigentlich

    quel quelle quels quelles quand où pourquoi combien est-ce avons avez avait était
    étaient mentionné mentionnée mentionnés parlé discuté expliqué décris exemple exemples choses
    sortes différents différentes liste dites conversation

    cuál cuáles cuándo cuánto cuánta cuántos cuántas dónde cómo quién quiénes qué hemos había dije
    dijo dijiste dijimos mencioné mencionó mencionado mencionaste hablé hablamos hablado explica
    describe ejemplo ejemplos cosas lista conversación tipos

    什么 什麼 哪里 哪些 哪个 怎么 怎麼 多少 是否 请问 提到 说过 讨论 谈到 列出 告诉 为什么

    です ます でした ました ですか ますか どこ いつ どの どんな なに 何です 何で 教えて ください
    について いくら だれ 話した 言った 言いました
"""
FRAMES = frozenset(words(_FRAMES))

_WISH = re.compile(
    # English
    r"\b(?:always|prefer|preferred|from (?:now|here) on|going forward|henceforth|whenever"
    r"|every time|each time|i['’]d rather|i would rather|never|don['’]t ever|do not ever"
    r"|at all times"
    # German
    r"|immer|niemals|nie wieder|bevorzuge|lieber|ab jetzt|ab sofort|von nun an|künftig|in zukunft"
    r"|jedes mal|jedesmal|grundsätzlich"
    # French
    r"|toujours|jamais|préfère|préférerais|désormais|dorénavant|à partir de maintenant"
    r"|à chaque fois|chaque fois"
    # Spanish
    r"|siempre|nunca|jamás|prefiero|preferiría|a partir de ahora|de ahora en adelante|cada vez)\b"
    # Chinese and Japanese
    r"|总是|始终|以后|今后|每次|每当|更喜欢|从现在起|从现在开始|永远|一律|切勿|總是|始終|以後|今後|每當|更喜歡"
    r"|いつも|常に|必ず|これから|毎回|の方が好き|のほうが好き|二度と|決して|今からは",
    re.IGNORECASE,
)
_NEVER = re.compile(
    r"\b(?:never|don['’]t ever|do not ever|niemals|nie wieder|jamais|nunca|jamás)\b"
    r"|永远不|切勿|二度と|決して",
    re.IGNORECASE,
)
_OF_ASSISTANT = re.compile(
    r"\b(?:(?:did|have|had) you|your (?:suggestion|recommendation|advice|explanation|answer)s?"
    r"|you (?:said|told|recommended|suggested|gave|explained|mentioned|proposed|listed|described"
    r"|advised|wrote|answered)"
    r"|hast du|hattest du|haben sie|hatten sie|sagtest du|deine? (?:antwort|vorschlag|rat)"
    r"|as-tu|avez-vous|avais-tu|aviez-vous|tu (?:as|m['’]as|avais) (?:dit|suggéré|recommandé"
    r"|conseillé|expliqué|proposé)|vous (?:avez|m['’]avez|aviez) (?:dit|suggéré|recommandé"
    r"|conseillé|expliqué|proposé)"
    r"|(?:me )?(?:dijiste|recomendaste|sugeriste|explicaste|propusiste|aconsejaste|mencionaste)"
    r"|(?:has|habías|ha usted) (?:dicho|recomendado|sugerido|explicado|propuesto|mencionado))\b"
    r"|[你您](?:刚才|之前|上次|以前)?(?:说|建议|推荐|提到|解释|列出)[过的了]?"
    r"|(?:あなた|君|きみ)(?:は|が)|(?:勧めて|教えて|提案して|説明して|言って)くれ(?:た|まし)",
    re.IGNORECASE,
)


def states_wish(text: str) -> bool:
    """Say whether a text has the words of a wish that lasts: always, never, from now on."""
    return _WISH.search(text, 0, _MOST) is not None


def forbids(text: str) -> bool:
    """Say whether a wish is a prohibition."""
    return _NEVER.search(text) is not None


def asks_assistant(question: str) -> bool:
    """Say whether a question is about what the assistant said."""
    return _OF_ASSISTANT.search(question) is not None
