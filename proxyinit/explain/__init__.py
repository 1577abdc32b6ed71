"""``proxy-init explain``: where a packet goes, and which rule decides.

The way through the package::

    packet, own        the packet asked about; which addresses are its namespace's own
    match              whether matches hold: yes, no, or why it can't be known
    extension, nft     of those kept word for word, of iptables and of nft
    option, address    parts of that
    target             what a target does to the packet
    view, walk         one packet through one table; trace: what became of it
    tables             through every table that the kernel asks
    flags, mistakes    the question on the command line
    dump, source       the rules: saved, planned or live
    show, cli          the answer
"""
