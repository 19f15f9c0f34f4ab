"""Code that a response shows in fences."""

from __future__ import annotations

FENCE = "```"


def last_block(text: str, languages: tuple[str, ...] = ("python", "py", "python3")) -> str | None:
    """The last closed block in one of the languages; without one, the last closed block that names no language.

    Linear in the length of the text. A block that the end of the response cuts off does not count.
    """
    named: str | None = None
    plain: str | None = None
    block: list[str] | None = None
    tag = ""
    for line in text.splitlines():
        bare = line.strip()
        if block is None:
            if bare.startswith(FENCE):
                tag, block = bare.strip("`").strip().lower(), []
            continue
        if not bare.endswith(FENCE):
            block.append(line)
            continue
        if bare != FENCE:
            block.append(line.rstrip()[: -len(FENCE)])
        content = "\n".join(block) + "\n"
        if tag in languages:
            named = content
        elif not tag:
            plain = content
        block = None
    return plain if named is None else named
