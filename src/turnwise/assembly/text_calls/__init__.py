"""Calls that a model wrote into its text: found, read strictly, and made calls like any other (docs/calls-in-text.md).

`frames.CallFinder` stands between a decoder and the assembler. It gives each text to a `text_reader.TextReader`, which looks for
the markers of `syntaxes`; the readers of the syntaxes are pure functions over the text so far.
"""
