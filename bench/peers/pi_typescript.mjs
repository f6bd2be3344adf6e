// The scenario on the TypeScript reference loop. Prints one JSON line per run; pi_typescript.py judges them.
//
//   node pi_typescript.mjs FOLDER_WITH_NODE_MODULES EVERY SCENARIO_AS_JSON
//
// A step is one promise job (async_hooks' "before" of a promise). Time is virtual: the fake sleeps are timers of ours,
// and the earliest is fired only when no job is left.

import { createHook } from "node:async_hooks";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, every, scenario] = [process.argv[2], Number(process.argv[3]), JSON.parse(process.argv[4])];
const library = (name) => import(pathToFileURL(join(folder, "node_modules/@earendil-works", name, "dist/index.js")));
const { Agent } = await library("pi-agent-core");
const { createAssistantMessageEventStream } = await library("pi-ai");

const { CALLS, NAPS, PAUSE, CONNECT_TURNS, SETTLE, SETTLE_TURNS } = scenario;
const IDLE_TURNS = 50;
const NOTHING = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
const MODEL = {
	id: "fake", name: "fake", api: "fake", provider: "fake", baseUrl: "", reasoning: false, input: ["text"],
	cost: NOTHING, contextWindow: 100000, maxTokens: 1000,
};

let current = null;
const promises = new Set();
createHook({
	init: (id, type) => type === "PROMISE" && promises.add(id),
	before: (id) => promises.has(id) && current?.step(),
	destroy: (id) => promises.delete(id),
}).enable();

class Experiment {
	constructor(mode, point) {
		Object.assign(this, { mode, point, now: 0, timers: [], effects: [], requests: 0, steps: 0, rests: 0 });
		Object.assign(this, { armed: false, closed: false, ended: null, stoppedAt: null, lastRest: -1 });
		const tools = Object.keys(CALLS).map((name) => this.tool(name));
		this.agent = new Agent({
			initialState: { systemPrompt: "s", model: MODEL, tools },
			streamFn: (model, context, options) => this.stream(options?.signal),
			toolExecution: mode,
		});
	}

	sleep(seconds) {
		return new Promise((resolve) => this.timers.push({ at: this.now + seconds, resolve }));
	}

	note(kind, id) {
		if (!this.closed) this.effects.push([kind, id]);
	}

	tool(name) {
		const execute = async (id, params, signal) => {
			this.note("started", id);
			for (const nap of NAPS[name]) {
				await this.sleep(nap);
				if (name === "coop" && signal?.aborted) throw new Error("stopped by the flag");
			}
			this.note("returned", id);
			return { content: [{ type: "text", text: `result of ${id}` }], details: {} };
		};
		return { name, label: name, description: name, parameters: { type: "object", properties: {} }, execute };
	}

	// Answers from the scenario, and obeys the signal before it sends and between chunks.
	stream(signal) {
		const events = createAssistantMessageEventStream();
		const usage = { ...NOTHING, totalTokens: 0, cost: { ...NOTHING, total: 0 } };
		const message = (text, calls, stopReason) => ({
			role: "assistant", api: "fake", provider: "fake", model: "fake", usage, stopReason, timestamp: 0,
			content: [
				{ type: "text", text },
				...Object.entries(calls).map(([name, id]) => ({ type: "toolCall", id, name, arguments: {} })),
			],
		});
		const produce = async () => {
			let text = "";
			const abort = () => events.push({ type: "error", reason: "aborted", error: message(text, {}, "aborted") });
			for (let turn = 0; turn < CONNECT_TURNS; turn++) await null;
			if (signal?.aborted) return abort();
			this.note("request", `r${++this.requests}`);
			const first = this.requests === 1 && !this.closed;
			await this.sleep(PAUSE);
			events.push({ type: "start", partial: message("", {}, "stop") });
			for (const delta of first ? ["Let me ", "look."] : ["All ", "done."]) {
				await this.sleep(PAUSE);
				if (signal?.aborted) return abort();
				text += delta;
				events.push({ type: "text_delta", contentIndex: 0, delta, partial: message(text, {}, "stop") });
			}
			await this.sleep(PAUSE);
			const reason = first ? "toolUse" : "stop";
			events.push({ type: "done", reason, message: message(text, first ? CALLS : {}, reason) });
		};
		produce();
		return events;
	}

	step() {
		if (this.armed) this.reached(++this.steps, false);
	}

	reached(number, resting) {
		const hit = this.point && this.point[0] === number && this.point[1] === resting;
		if (!hit || this.stoppedAt !== null || this.ended !== null) return false;
		this.stoppedAt = this.effects.length;
		this.agent.abort();
		return true;
	}

	prompt(text) {
		this.ended = null;
		this.agent.prompt(text).then(
			() => (this.ended = "returned"),
			(error) => (this.ended = `raised ${error.name}: ${error.message}`),
		);
	}

	// No promises in here: the driver must not take steps of its own.
	drive(done, idle = 0) {
		setImmediate(() => {
			if (this.ended !== null) return done();
			if (this.armed && this.lastRest !== this.steps) {
				this.lastRest = this.steps;
				if (this.reached(++this.rests, true)) return this.drive(done);
			}
			if (this.fire()) return this.drive(done);
			if (idle < IDLE_TURNS) return this.drive(done, idle + 1);
			this.ended = "hung";
			done();
		});
	}

	fire(until = Infinity) {
		this.timers.sort((a, b) => a.at - b.at);
		if (!this.timers.length || this.timers[0].at > until) return false;
		const timer = this.timers.shift();
		this.now = timer.at;
		timer.resolve();
		return true;
	}

	settle(done, turns, until) {
		setImmediate(() => {
			if (turns > 0) return this.settle(done, turns - 1, until);
			if (until !== undefined && this.fire(until)) return this.settle(done, 1, until);
			done();
		});
	}

	run(report) {
		current = this;
		this.prompt("go");
		this.armed = true;
		this.drive(() => {
			this.armed = false;
			const ended = this.ended;
			this.settle(() => {
				const leaked = this.timers.map(() => "a sleep");
				this.settle(() => this.judgeable(ended, leaked, report), 1, this.now + SETTLE);
			}, SETTLE_TURNS);
		});
	}

	judgeable(ended, leaked, report) {
		const calls = [], results = {};
		for (const message of this.agent.state.messages) {
			const parts = Array.isArray(message.content) ? message.content : [];
			if (message.role === "assistant") calls.push(...parts.filter((p) => p.type === "toolCall").map((p) => p.id));
			if (message.role === "toolResult") results[message.toolCallId] = parts.map((p) => p.text).join("");
		}
		this.closed = true;
		this.prompt("again");
		this.drive(() => {
			const last = this.agent.state.messages.at(-1);
			const fine = this.ended === "returned" && last.role === "assistant" && last.stopReason === "stop";
			const again = fine ? "ok" : `${this.ended}, ends with ${last?.role} ${last?.stopReason}`;
			const { mode, point, effects, stoppedAt, steps, rests } = this;
			report({ mode, point, effects, stoppedAt, calls, results, leaked, ended, again, steps, rests });
		});
	}
}

function sweep(mode, done) {
	const write = (seen) => process.stdout.write(`${JSON.stringify(seen)}\n`);
	new Experiment(mode, null).run((base) => {
		write(base);
		const upTo = (count, resting) => Array.from({ length: count }, (_, index) => [index + 1, resting]);
		const points = [...upTo(base.steps, false), ...upTo(base.rests, true)];
		const left = points.filter((_, index) => index % every === 0);
		const next = () => {
			const point = left.shift();
			if (!point) return done();
			new Experiment(mode, point).run((seen) => {
				write(seen);
				next();
			});
		};
		next();
	});
}

sweep("sequential", () => sweep("parallel", () => {}));
