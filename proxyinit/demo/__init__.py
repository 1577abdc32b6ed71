"""The product shown at work, with every claim checked: ``python -m proxyinit.demo``.

The tables of what has to happen (`expectations`) know nothing of running or
showing; a chapter (`interception`) runs them on the stage (`stage`) and tells the
reader through the narrator (`narrator`). What does not happen as the tables say
ends the demo with exit code 1.
"""
