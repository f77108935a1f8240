"""Whole updates of a worker, as <weft/fabric.h> has them; servers are written in C (docs/FABRIC.md).

    import weft, weft.fabric

    with weft.connect(servers, scheduler=address, consistency="asp", tau_max=16) as ps:
        table = ps.table(0, dim=64, length=1_000_000, consistency="asp")
        for batch in batches:
            (model,) = weft.fabric.get(ps, [(table, 0)])
            gradient = compute(model, batch)
            if weft.fabric.push(ps, [(table, 0, gradient)]).dropped:
                ...  # nothing of it was applied; the next get has a newer model
"""


def push(ps, lists, norm=None):
    """Push one update, end its step, and wait for the outcome. -> Result; `dropped` is true if it was dropped

    lists: as of ps.push; the clock of each of their tables is ended once. norm: of the update, for the
    scheduler; None = computed.
    """
    lists = list(lists)
    op = ps.push_async(lists, norm=norm)
    for table in dict.fromkeys(table for table, *_ in lists):
        table.clock()  # this completes the update, so that the scheduler decides on all of it at once
    return op.wait()


def get(ps, lists):
    """Get the model, or the rows of it that a step needs. -> list of arrays, as ps.pull"""
    return ps.pull(lists)
