"""Defects seeded by someone who did not write the loop: what a sweep must find."""

from sweeps.seeding import Defect

FROM_OUTSIDE = [
    Defect(
        name="turn-end-keeps-the-last-answer",
        guarantee="G1",
        why="The reset in begin_turn looks redundant, since every response sets the field again. A run that is aborted "
        "in its second turn before the response begins (in transform_context, or while the request connects) says a "
        "turn_end with the assistant message of the turn before.",
        module="_record.py",
        old="""        self._assistant, self._results = None, []
        self._settled""",
        new="""        self._results = []
        self._settled""",
    ),
    Defect(
        name="no-start-for-an-empty-message",
        guarantee="G1",
        why="'A message of which nothing was written needs no message_start.' A model that fails before its first "
        "delta (connection refused) puts a message into the transcript that no event has reported: its message_end "
        "is refused by the grammar and the GrammarError comes out instead of a result with outcome error.",
        module="_writer.py",
        old="""        self._end_block()
        self._start_message()
        self._closed = True""",
        new="""        self._end_block()
        self._closed = True""",
    ),
    Defect(
        name="pending-until-ended",
        guarantee="G2",
        why="'A call whose end was said is not pending any more': state.pending_tool_calls looks better. But sealing "
        "looks up calls there, so a run that is ended when a parallel call has ended and is not yet answered (its "
        "sibling still runs) fails in seal(): the calls stay without results.",
        module="_record.py",
        old="""        settled = self._settled[call.id]
        self.emit(""",
        new="""        settled = self._settled[call.id]
        self.pending_calls.pop(call.id, None)
        self.emit(""",
    ),
    Defect(
        name="taken-up-counts-as-running",
        guarantee="G3",
        why="One place fewer to call: a call is marked as running where its start is said. If the run is ended while "
        "an async before_tool_call decides about the call, its result says 'cancelled, effects unknown', though the "
        "tool has not been touched (not_started).",
        module="_record.py",
        old="""        self.emit(ToolExecutionStart(call.id, call.name, call))
""",
        new="""        self._running[call.id] = call, trio.current_time()
        self.emit(ToolExecutionStart(call.id, call.name, call))
""",
    ),
    Defect(
        name="seal-settles-again",
        guarantee="G3",
        why="Sealing settles every call that has not ended. A tool that has returned, and whose async after_tool_call "
        "hook is waiting when the run is aborted or cancelled, has its finished result overwritten by 'cancelled'.",
        module="_record.py",
        old="""            if call.id not in self._settled:
                ran = call.id in self._running
                text = CANCELLED_TEXT if ran else NOT_STARTED_TEXT
                self.settle(call, ToolResult(text, is_error=True), "cancelled" if ran else "not_started")
            self.end_call(call)""",
        new="""            ran = call.id in self._running
            text = CANCELLED_TEXT if ran else NOT_STARTED_TEXT
            self.settle(call, ToolResult(text, is_error=True), "cancelled" if ran else "not_started")
            self.end_call(call)""",
    ),
    Defect(
        name="settled-of-an-earlier-turn",
        guarantee="G3",
        why="Ids are thought to be unique in a run, so nothing is forgotten between turns. A server that counts ids "
        "anew in each response (call_0, call_1) makes a call of turn 2 that is cut or never started answer with the "
        "'completed' result of turn 1.",
        module="_record.py",
        old="""        self._settled, self._running = {}, {}
        self.emit(TurnStart""",
        new="""        self.emit(TurnStart""",
    ),
    Defect(
        name="late-is-timed-out",
        guarantee="G3",
        why="'The scope was cancelled, so the call timed out.' A tool that returned after its deadline had passed, "
        "without having been cut (it shielded its last step, or computed without a checkpoint), loses its finished "
        "result to a timeout error.",
        module="_execute.py",
        old="""    if record.settled_result(tool_call) is None:
        text = f"Timed out""",
        new="""    if scope.cancel_called:
        text = f"Timed out""",
    ),
    Defect(
        name="result-after-the-readers",
        guarantee="G3",
        why="Backpressure put where the next event is about to be said: the loop waits for the readers between the "
        "return of the tool and its record. A run that is aborted or cancelled in the step in which the tool returned, "
        "or while the reader is behind, says 'cancelled' of a tool that finished.",
        module="_execute.py",
        old="""    _settle_value(run, tool_call, value)
    return None""",
        new="""    await run.record.room()
    _settle_value(run, tool_call, value)
    return None""",
    ),
    Defect(
        name="request-without-a-last-look",
        guarantee="G4",
        why="ask() has just looked for a cancellation, so a second look before the request seems redundant. But "
        "that look came before the hook: an abort in the very step in which an async convert_to_llm is woken, or by a "
        "sync one itself, is followed by a request.",
        module="_loop.py",
        old="""    await trio.lowlevel.checkpoint_if_cancelled()
    model, request""",
        new="""    model, request""",
    ),
    Defect(
        name="tool-starts-without-a-look",
        guarantee="G4",
        why="_prepare() has looked a line before, so the look in _execute() seems redundant. A parallel tool's task "
        "begins later than it was made, and an observer may abort at tool_execution_start: the tool starts after the "
        "abort.",
        module="_execute.py",
        old="""    await trio.lowlevel.checkpoint_if_cancelled()
    record.observers.raise_interrupt()
    record.mark_running(tool_call)""",
        new="""    record.observers.raise_interrupt()
    record.mark_running(tool_call)""",
    ),
    Defect(
        name="hook-after-the-abort",
        guarantee="G4",
        why="Hooks are called where the loop has just passed a checkpoint, so ask() need not look. An atomic tool "
        "that finishes within its grace after an abort or a cancellation is followed by a call of after_tool_call.",
        module="_run.py",
        old="""        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            return await call(hook, *args)""",
        new="""        try:
            return await call(hook, *args)""",
    ),
    Defect(
        name="abort-says-true-to-the-second",
        guarantee="G5",
        why="The scope says whether somebody was earlier, the answer of decide() is overlooked. An abort() after an "
        "error has decided (a model's failure, seen by an observer that aborts; on_tool_error='raise' with an async "
        "after_tool_call still waiting) returns True although the outcome is error.",
        module="_run.py",
        old="""        if self.scope.cancel_called or not self.record.decide("aborted", reason=reason):
            return False
""",
        new="""        if self.scope.cancel_called:
            return False
        self.record.decide("aborted", reason=reason)
""",
    ),
    Defect(
        name="an-error-outranks-the-abort",
        guarantee="G5",
        why="An error should not be hidden behind a mere abort. A hook or a model that is cut by an abort and fails in "
        "its cleanup turns the outcome into error, after abort() has said True.",
        module="_record.py",
        old="""        if self.cause is not None:
            return False
""",
        new="""        if self.cause is not None and (error is None or self.cause.error is not None):
            return False
""",
    ),
    Defect(
        name="warnings-in-a-finally",
        guarantee="G6",
        why="try/finally is shorter than two calls of warn(). Where warnings are errors (pytest), an observer that "
        "raised in a run that is then cancelled from outside makes an ObserverWarning come out of prompt() in the "
        "place of Cancelled.",
        module="_agent.py",
        old="""        except BaseException as error:
            self._observers.warn(error)
            raise
        self._observers.warn()
        assert run""",
        new="""        finally:
            self._observers.warn()
        assert run""",
    ),
    Defect(
        name="cleanup-error-ends-the-run",
        guarantee="G6",
        why="on_tool_error='raise' is applied to whatever a tool raises. A tool that is cut by a cancellation and "
        "fails in its cleanup ends the run with that error: ValueError comes out of prompt() instead of Cancelled, "
        "and instead of the result of an abort or a deadline.",
        module="_execute.py",
        old="""on_tool_error == "raise" and errors and not cancelled""",
        new="""on_tool_error == "raise" and errors""",
    ),
    Defect(
        name="bare-looks-one-level-deep",
        guarantee="G7",
        why="A group is opened once; that a hook's own nursery makes a group within the run's group is forgotten. A "
        "hook, a transform or a model that opens a nursery and fails in it gives the embedder an ExceptionGroup.",
        module="_scopes.py",
        old="""    inner = list(leaves(error))
""",
        new="""    inner = list(error.exceptions)
""",
    ),
    Defect(
        name="the-run-outranks-the-body",
        guarantee="G7",
        why="The run's failure came first, so it is raised first. When a hook has failed while the block was reading "
        "and the body then raises its own exception, the body's exception does not come out.",
        module="_drive.py",
        old="""            body.add_note(f"the run also raised: {type(failure).__name__}: {say(failure)}")
""",
        new="""            raise failure from body
""",
    ),
    Defect(
        name="a-leaving-reader-wakes-nobody",
        guarantee="G8",
        why="Whoever takes events opens the room, and after close() nobody takes any, so opening it there looks "
        "pointless. A run that waits for a subscribed reader which is over its bound waits for ever when that reader "
        "leaves: prompt() and the block never end.",
        module="_stream.py",
        old="""        self.cut = True
        self._send.close()
        self._open_room()
""",
        new="""        self.cut = True
        self._send.close()
""",
    ),
    Defect(
        name="idle-asked-once",
        guarantee="G8",
        why="An event that has been waited for is taken as proof. Two tasks wait for idle; the first one to wake "
        "starts the next run in the same tick, and wait_idle() returns to the second one while that run is active.",
        module="_controls.py",
        old="""        while self._run is not None:
            await self._idle.wait()""",
        new="""        if self._run is not None:
            await self._idle.wait()""",
    ),
    Defect(
        name="thread-abandoned",
        guarantee="G9",
        why="So that sync tools can be cut by an abort as well. The run is sealed and the agent idle while the thread "
        "of the cut tool still works and has its effects.",
        module="_tools.py",
        old="""trio.to_thread.run_sync(call""",
        new="""trio.to_thread.run_sync(call, abandon_on_cancel=True""",
    ),
    Defect(
        name="sealed-by-the-abort",
        guarantee="G9",
        why="So that the agent is idle as soon as abort() has returned. The tools that were running still unwind then: "
        "an atomic tool goes on within its grace after agent_end, and the result that it returns is lost.",
        module="_controls.py",
        old="""        return self._run is not None and self._run.abort(reason)
""",
        new="""        run = self._run
        if run is None or not run.abort(reason):
            return False
        run.record.seal()
        return True
""",
    ),
    Defect(
        name="steering-taken-before-the-room",
        guarantee="G10",
        why="The readers are given time between turns, and the batch is taken a line too early. If the run is ended "
        "while it waits there (slow reader, or an observer that aborts at turn_end), the steering messages are in "
        "neither the queue nor the transcript.",
        module="_loop.py",
        old="""            await trio.lowlevel.checkpoint_if_cancelled()
            record.begin_turn(steering.take())""",
        new="""            batch = steering.take()
            await record.room()
            record.begin_turn(batch)""",
    ),
    Defect(
        name="follow-ups-taken-before-the-look",
        guarantee="G10",
        why="Two lines changed places: the queue is emptied, then comes a checkpoint. A run that is aborted or "
        "cancelled at that checkpoint has lost the follow-ups.",
        module="_loop.py",
        old="""        await trio.lowlevel.checkpoint_if_cancelled()
        record.begin_turn(follow_ups.take())""",
        new="""        batch = follow_ups.take()
        await trio.lowlevel.checkpoint()
        record.begin_turn(batch)""",
    ),
    Defect(
        name="resume-takes-before-it-is-allowed",
        guarantee="G10",
        why="The batch is taken before the run is opened. resume() by another task while a run is active (at its "
        "steering point after an answer), or with a bad timeout, raises rightly, and the queued messages are gone.",
        module="_agent.py",
        old="""        run = self._open_run(sink, timeout, output)
        run.looks_first = not (answered and queue is self._steering)
        run.record.begin((), queue.take() if answered else ())""",
        new="""        receipts = queue.take() if answered else []
        run = self._open_run(sink, timeout, output)
        run.looks_first = not (answered and queue is self._steering)
        run.record.begin((), receipts)""",
    ),
    Defect(
        name="withdrawal-torn",
        guarantee="G10",
        why="withdraw() is two lines of plain Python, so its protection seems excessive. A Ctrl-C between them leaves "
        "a message that is in no queue, not withdrawn and never delivered; wait_delivered() waits for ever.",
        module="_queues.py",
        old="""    @trio.lowlevel.enable_ki_protection
    def withdraw(self) -> bool:""",
        new="""    def withdraw(self) -> bool:""",
    ),
    Defect(
        name="event-taken-before-the-checkpoint",
        guarantee="G11",
        why="The usual order, work first and checkpoint last. A reader whose __anext__ is cancelled (move_on_after "
        "around one step) at its 64th event or in the step in which it is cancelled has lost the event that was "
        "already taken, and goes on behind a gap.",
        module="_stream.py",
        old="""        self._taken += 1
        if self._taken >= SCHEDULE_EVERY:
            self._taken = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        while self._position >= len(self._batch):
            self._reader_task = trio.lowlevel.current_task()
            await self._receive()
        position = self._position
        entry = self._batch[position]
        self._batch[position] = None  # a taken event is the reader's alone
        self._position = position + 1
""",
        new="""        while self._position >= len(self._batch):
            self._reader_task = trio.lowlevel.current_task()
            await self._receive()
        position = self._position
        entry = self._batch[position]
        self._batch[position] = None  # a taken event is the reader's alone
        self._position = position + 1
        self._taken += 1
        if self._taken >= SCHEDULE_EVERY:
            self._taken = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
""",
    ),
    Defect(
        name="overflow-dropped-without-a-cut",
        guarantee="G11",
        why="What does not fit is dropped while somebody only waits for the result; closing the lane seems harsh. If "
        "that wait is cancelled and the reader goes on, it gets later events behind a gap.",
        module="_stream.py",
        old="""        if self.waived and self.buffered > self.bound:
            self.close()
            return""",
        new="""        if self.waived and self.buffered > self.bound:
            return""",
    ),
    Defect(
        name="waiver-outlives-its-wait",
        guarantee="G11",
        why="result() returns or raises only when all is over, so the waiver need not be taken back; a cancelled wait "
        "is forgotten. After move_on_after() around result(), a slow reader that stays is cut off at its bound.",
        module="_stream.py",
        old="""            self._waiting_for_result -= 1
            if not self._waiting_for_result:
                self._lane.waived = 0
""",
        new="""            self._waiting_for_result -= 1
""",
    ),
    Defect(
        name="reader-busy-for-ever",
        guarantee="G11",
        why="The flag is reset after the receive instead of in a finally. A reader whose waiting __anext__ was "
        "cancelled (move_on_after) meets BusyResourceError at its next step and sees no further event.",
        module="_stream.py",
        old="""            self._lane.batch = None
            self._taken = 0
        except trio.EndOfChannel:
            if self._sink._error is not None:
                raise self._sink._error from None
            raise StopAsyncIteration from None
        finally:
            self._reading = False
""",
        new="""            self._lane.batch = None
            self._taken = 0
            self._reading = False
        except trio.EndOfChannel:
            self._reading = False
            if self._sink._error is not None:
                raise self._sink._error from None
            raise StopAsyncIteration from None
""",
    ),
    Defect(
        name="fragments-need-no-room",
        guarantee="G12",
        why="Fragments of arguments are small, and the end of the call waits anyway. A model that streams one huge "
        "call while the reader is slow or stands still fills the buffer far beyond its bound.",
        module="_writer.py",
        old="""        self._append(self._open_call("tool_call_delta"), json_fragment)
        await self._room()
""",
        new="""        self._append(self._open_call("tool_call_delta"), json_fragment)
        await trio.lowlevel.checkpoint()
""",
    ),
    Defect(
        name="progress-into-a-full-stream",
        guarantee="G12",
        why="Progress should never be refused while the tool runs. A tool that reports without pause while the reader "
        "stands still fills the memory; update() is sync and cannot wait.",
        module="_record.py",
        old="""if self._sink.is_full or not self._runs(call):""",
        new="""if not self._runs(call):""",
    ),
    Defect(
        name="timeout-knows-no-grace",
        guarantee="G13",
        why="The shield gets the deadline of the call, since a tool with a timeout has said how long it may take. An "
        "atomic tool whose timeout passes is cut at once, in the middle, instead of after its grace.",
        module="_execute.py",
        old="""deadline=scope.deadline + run.grace)""",
        new="""deadline=scope.deadline)""",
    ),
    Defect(
        name="grace-only-for-the-first-cause",
        guarantee="G13",
        why="'The first cause stands, so a later one changes nothing.' abort() has decided before it cancels, so the "
        "shields get no deadline: an atomic tool that ignores the abort is never cut and the run does not settle "
        "within the grace. (With an outer cancellation or a deadline all is well.)",
        module="_run.py",
        old="""        self.record.decide("deadline" if own else "cancelled")
""",
        new="""        if not self.record.decide("deadline" if own else "cancelled"):
            return
""",
    ),
    Defect(
        name="siblings-without-a-grace",
        guarantee="G13",
        why="The nursery cancels the siblings of a call that fails, so telling the run at that moment seems redundant. "
        "With on_tool_error='raise', an atomic sibling is shielded against the nursery and nothing starts its grace: "
        "the run goes on for as long as that tool likes.",
        module="_calls.py",
        old="""    except BaseException as error:
        run.fail(error)
        raise
""",
        new="""    except Exception:
        raise
""",
    ),
    Defect(
        name="observers-or-new-ones",
        guarantee="G14",
        why="`x or default()`, but Observers has a length: an agent without observers gives its run a set that nobody "
        "else holds. An observer that subscribes while the run is going on sees nothing of it.",
        module="_record.py",
        old="""        self.observers = observers if observers is not None else Observers()
""",
        new="""        self.observers = observers or Observers()
""",
    ),
    Defect(
        name="told-from-the-live-list",
        guarantee="G14",
        why="The copy in the loop over the observers looks wasteful. When one raises and is removed, or unsubscribes "
        "itself while it is told, the next one in the list misses this event.",
        module="_observers.py",
        old="""            for entry in tuple(self._entries):""",
        new="""            for entry in self._entries:""",
    ),
    Defect(
        name="late-update-goes-by-id",
        guarantee="G15",
        why="`in` reads better than the comparison by identity. Where ids repeat from turn to turn, a tool of turn 1 "
        "that left its context to a background task reports progress of the call of turn 2.",
        module="_record.py",
        old="""        return running is call and call.id not in self._settled""",
        new="""        return running is not None and call.id not in self._settled""",
    ),
    Defect(
        name="late-reader-sees-the-finished-block",
        guarantee="G15",
        why="A finished part is cheaper than joining its chunks again. A reader that is behind reads the first delta "
        "when the block has ended, and event.message shows the whole text instead of the text as of that event.",
        module="_events.py",
        old="""last.finished if ended and last.finished else last.as_of(chunk_count)""",
        new="""last.finished or last.as_of(chunk_count)""",
    ),
    Defect(
        name="steering-clears-the-batch",
        guarantee="G16",
        why="'Steering skips the batch' taken too far: calls that were started in parallel are cancelled with it. A "
        "steer that comes while a batch is being started (an async before_tool_call, a slow reader) cuts the tools "
        "that run already.",
        module="_calls.py",
        old="""and index and run.has_steering():
                        break
                    await run.record.room()
                    if not run.take_call(tool_call):
                        break
                    prepared = await prepare(run, tool_call)
                    started.append(tool_call)
                    if prepared is not None:
                        batch.left += 1
                        name = f"tool {tool_call.name}"
                        nursery.start_soon(_execute_beside, run, batch, tool_call, *prepared, name=name)
                # waited for here and not in the nursery's exit: an interrupt there would end the batch alone, and
                # neither the guard nor the tools' graces would know of it
                await batch.wait_below(1)
    except BaseExceptionGroup as group:
        raise_bare(group)
    terminating = 0
    for tool_call in started:
        await run.record.room()
""",
        new="""and index and run.has_steering():
                        nursery.cancel_scope.cancel()
                        break
                    await run.record.room()
                    if not run.take_call(tool_call):
                        break
                    prepared = await prepare(run, tool_call)
                    started.append(tool_call)
                    if prepared is not None:
                        batch.left += 1
                        name = f"tool {tool_call.name}"
                        nursery.start_soon(_execute_beside, run, batch, tool_call, *prepared, name=name)
                # waited for here and not in the nursery's exit: an interrupt there would end the batch alone, and
                # neither the guard nor the tools' graces would know of it
                await batch.wait_below(1)
    except BaseExceptionGroup as group:
        raise_bare(group)
    terminating = 0
    for tool_call in started:
        await run.record.room()
        if run.record.settled_result(tool_call) is None:
            run.record.refuse_call(tool_call, SKIPPED_TEXT, "skipped")
""",
    ),
    Defect(
        name="abort-after-the-deadline",
        guarantee="G17",
        why="decide() refuses a second cause by itself, so the question to the scope seems redundant. In a step that "
        "began before the run's deadline and lasts beyond it, trio has not noticed the deadline yet: an abort() there "
        "says True and the outcome is aborted, although the deadline was first.",
        module="_run.py",
        old="""        if self.scope.cancel_called or not self.record.decide("aborted", reason=reason):
""",
        new="""        if not self.record.decide("aborted", reason=reason):
""",
    ),
    Defect(
        name="leaving-cancels-the-nursery",
        guarantee="G17",
        why="The usual way to end what runs in a nursery. A reader that leaves its block early, or whose body raises, "
        "ends the run with outcome cancelled instead of aborted, and without a reason.",
        module="_drive.py",
        old="""            run.abort("the reader left the block" if body is None else "the body of the block raised")
""",
        new="""            nursery.cancel_scope.cancel()
""",
    ),
    Defect(
        name="whole-calls-are-kept",
        guarantee="G18",
        why="Only a call whose arguments are incomplete seems dangerous, so the others are kept. A response that is "
        "cut after its first whole call (an abort during the text or the call behind it) carries that call.",
        module="_writer.py",
        old="""            content = [part for part in content if not isinstance(part, ToolCall)]
""",
        new="""            content = [p for p in content if not isinstance(p, ToolCall) or not p.arguments_error]
""",
    ),
    Defect(
        name="its-own-reason-first",
        guarantee="G18",
        why="What the model itself said about the end of its response is taken to be better informed. A response that "
        "is cut by an abort or a lost connection after finish() and before stream() has returned (the usage comes in a "
        "last chunk) keeps its stop reason and its tool calls.",
        module="_writer.py",
        old="""        reason = failure or self._stop_reason or (""",
        new="""        reason = self._stop_reason or failure or (""",
    ),
    Defect(
        name="delivered-before-the-hooks",
        guarantee="G19",
        why="The response is begun at the top, beside the snapshot of the transcript. If the run is ended while an "
        "async transform_context or convert_to_llm is waiting, messages count as delivered that were in no request; "
        "reset() does not give them back.",
        module="_loop.py",
        old="""    messages: Sequence[Message] = tuple(record.transcript)
""",
        new="""    messages: Sequence[Message] = tuple(record.transcript)
    record.begin_response(settings.config.model)
""",
    ),
    Defect(
        name="unseen-or-a-new-list",
        guarantee="G19",
        why="`x or []`: the agent's list is empty when a run begins, so each run gets a list of its own. A steering "
        "message that entered the transcript of a run that was aborted before its request is never marked as "
        "delivered by the next run, and reset() does not return it.",
        module="_record.py",
        old="""        self._unseen = unseen if unseen is not None else []
""",
        new="""        self._unseen = unseen or []
""",
    ),
    Defect(
        name="prompt-unprotected",
        guarantee="G20",
        why="drive() is protected, so the decorator of prompt() looks redundant. A Ctrl-C on the lines between the "
        "opening of the run and drive() leaves an agent that is busy for ever, with a run that nobody seals.",
        module="_agent.py",
        old="""    @trio.lowlevel.enable_ki_protection
    async def prompt(""",
        new="""    async def prompt(""",
    ),
    Defect(
        name="observers-catch-exceptions-only",
        guarantee="G20",
        why="`except BaseException` is bad style. A Ctrl-C that falls into an observer comes out of emit() in the "
        "middle of the books: during the events of begin() the run is never sealed and the agent is busy for ever, "
        "and during the sealing seal() itself fails.",
        module="_observers.py",
        old="""        except BaseException as error:  # noqa: BLE001
            interrupts""",
        new="""        except Exception as error:  # noqa: BLE001
            interrupts""",
    ),
    Defect(
        name="interrupt-asked-before-the-seal",
        guarantee="G20",
        why="Two lines changed places. A Ctrl-C that falls into an observer while an aborted or cancelled run is being "
        "sealed is kept and never raised: prompt() returns as if nothing had happened, and the next run of the agent "
        "dies of it.",
        module="_drive.py",
        old="""        record.seal()
        record.observers.raise_interrupt()
""",
        new="""        record.observers.raise_interrupt()
        record.seal()
""",
    ),
    Defect(
        name="block-exit-unprotected",
        guarantee="G20",
        why="The generator behind the block is protected, so the wrapper seems to need nothing. A Ctrl-C in "
        "contextlib's own lines at the exit of the block never reaches the generator: the run's nursery stays open.",
        module="_drive.py",
        old="""    @trio.lowlevel.enable_ki_protection
    async def __aexit__(""",
        new="""    async def __aexit__(""",
    ),
    Defect(
        name="errors-beside-a-cancellation-raised",
        guarantee="G21",
        why="'When we are cancelled, whatever comes out goes on out.' A tool that is cut and fails in its cleanup "
        "(a ValueError, or a group with one beside Cancelled) has its error thrown through the run instead of kept as "
        "its result: after an abort prompt() raises ValueError.",
        module="_execute.py",
        old="""for leaf in errors) or (not errors and cancelled):
            raise""",
        new="""for leaf in errors) or cancelled:
            raise""",
    ),
    Defect(
        name="stale-cancelled-passes",
        guarantee="G21",
        why="'Cancelled must never be caught.' A tool that raises a Cancelled which it kept from an earlier scope of "
        "its own ends the run with an error instead of getting an error result.",
        module="_execute.py",
        old="""        value = await run_unprotected(tool.execute, arguments, context)
    except (Exception, trio.Cancelled, BaseExceptionGroup) as error:""",
        new="""        value = await run_unprotected(tool.execute, arguments, context)
    except (Exception, BaseExceptionGroup) as error:""",
    ),
    Defect(
        name="errors-rank-behind-cancelled",
        guarantee="G21",
        why="The sort key is simplified to 'no Exception comes first', and Cancelled is no Exception. Where one call "
        "of a parallel batch fails for good (a hook, on_tool_error='raise') and its sibling is cut because of it, "
        "Cancelled is chosen, the run's scope takes it out, and the error is not raised.",
        module="_scopes.py",
        old="""key=lambda e: 2 if isinstance(e, trio.Cancelled) else int(isinstance(e, Exception)))""",
        new="""key=lambda e: isinstance(e, Exception))""",
    ),
]
