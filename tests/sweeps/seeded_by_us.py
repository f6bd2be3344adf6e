"""Defects seeded by those who wrote the loop, where the ones from outside left a guarantee with fewer than two."""

from sweeps.seeding import Defect

BY_US = [
    Defect(
        name="skipped-without-an-answer",
        guarantee="G2",
        why="A call that was skipped has nothing to tell the model, it seems. Steering during the first of three calls "
        "leaves the other two without a result.",
        module="_calls.py",
        old="""        run.record.refuse_call(tool_call, SKIPPED_TEXT, "skipped")
        run.record.answer(tool_call)
""",
        new="""        run.record.refuse_call(tool_call, SKIPPED_TEXT, "skipped")
""",
    ),
    Defect(
        name="guard-never-dismissed",
        guarantee="G9",
        why="The guard ends with the run's scope, so why dismiss it: but a run that ends by itself cancels nothing, "
        "and its guard waits for ever, and the run for its guard.",
        module="_drive.py",
        old="""            guard.dismiss()
""",
        new="""            pass
""",
    ),
    Defect(
        name="no-time-while-steering-waits",
        guarantee="G16",
        why="A tool that begins while a steering message waits is work for nothing, so it gets no time: it is cut at "
        "its first checkpoint, by steering and not by an abort.",
        module="_execute.py",
        old="""deadline=math.inf if tool.timeout is None""",
        new="""deadline=(0 if run.has_steering() else math.inf) if tool.timeout is None""",
    ),
    Defect(
        name="nested-grace-of-its-own",
        guarantee="G13",
        why="An agent that is a tool has an abort_grace of its own, so why not use it: but the run around it has to be "
        "over when its own grace is over.",
        module="_nested.py",
        old="""        config.abort_grace = min(config.abort_grace, outer.run.grace)
""",
        new="""        pass
""",
    ),
    Defect(
        name="nested-run-shielded",
        guarantee="G4",
        why="A nested run must be sealed before its call has a result, and a shield makes sure of that. It also keeps "
        "the abort out: the nested agent goes on to ask its model and to start tools.",
        module="_nested.py",
        old="""    await drive(run, Guard(run))
""",
        new="""    with trio.CancelScope(shield=True):
        await drive(run, Guard(run))
""",
    ),
    Defect(
        name="approval-outlasts-the-abort",
        guarantee="G13",
        why="A person who has begun to read should not be interrupted: the wait is shielded, and the run cannot end "
        "before they have answered.",
        module="tools/_approval.py",
        old="""        with trio.CancelScope() as scope:
            if timeout""",
        new="""        with trio.CancelScope(shield=True) as scope:
            if timeout""",
    ),
]
