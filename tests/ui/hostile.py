"""Hostile texts, and a store that has them in every field."""

from tests.ui.site import Site

MARKUP = "<img src=x onerror='window.hit=1'><script>window.hit=1</script><b>bold</b>"
HOSTILE = {
    "markup": MARKUP,
    "attribute": '"><svg onload="window.hit=1">',
    "link": "javascript:window.hit=1",
    "template": "{{7*7}} ${7*7} {total_spend}",
    "control": "bell \a, escape \x1b[31mred, backspace \b, line\u2028separator",
    "rtl": "مرحبا \u202eTXT.EXE\u202c שלום",
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈 Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢",
    "long": "x" * 10_000,
    "lines": "\n".join(["line"] * 300),
}
MARKED_ID = "<b>bold</b>"


def fill(site: Site) -> Site:
    """Fill a store with hostile text, and return its server."""
    site.index("hostile", "\n\n".join(HOSTILE.values()))
    for kind, text in HOSTILE.items():
        site.index(kind, text)
        site.publish("signed_up", kind, name=text)
        site.publish("checkout", kind, country=text, kg=1)
        site.publish("purchase", kind, amount=1, **{"note": text, MARKUP: text})
    site.publish("signed_up", MARKED_ID, name=MARKUP)
    site.drain()
    for kind, text in HOSTILE.items():
        site.assemble("letter", user_id=kind, text=text)
    # The first record is the one whose page is opened.
    site.records.insert(0, site.assemble("letter", user_id=MARKED_ID, text=MARKUP))
    return site
