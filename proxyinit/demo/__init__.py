"""The product shown at work, with every claim checked: ``python -m proxyinit.demo``.

The way through the package::

    expectations   what has to happen: connections, rules, arguments
    checks         what was found against that: pure, raises where they differ
    stage          the laboratory, the program under proof, the narrator
    interception   the chapters: act on the stage, check, tell the narrator
    examination    chapters that explain, verify and repair
    injection      the chapter on a manifest that is injected
    identity       chapters on certificates, after those
    tables         how the chapters' tables look
    play           every chapter in turn, then the machine as it was

A chapter is a title, why it matters, and a function over the stage; `play.PARTS`
lists them all. What is not as expected ends the demo with exit code 1.
"""
