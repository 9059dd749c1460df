// Wakebus for a web app, in one file to copy: publish a command, read its events in order, come back to them later,
// cancel, end, read and write files, and sign the grant that says who asks. It needs nats.js and nothing else.
//
// Two rules are all that a publisher has to keep:
//   - A publish that timed out may have been stored. Publish again with the same job_id: it runs once.
//   - A result that is `retryable` did not run. Publish again with a new job_id.
import { createHash, randomUUID, sign, type KeyObject } from 'node:crypto';
import { headers, type Msg, type MsgHdrs, type NatsConnection, type Subscription } from '@nats-io/nats-core';

/** An event of a run, in the order of `seq`. Output carries `data`, everything else `body`. */
export interface Event {
  kind: string;
  job: string;
  run: number;
  seq: number;
  stdoutOffset: number;
  stderrOffset: number;
  data?: Uint8Array;
  body?: unknown;
}

/** A refusal: nothing was stored. `status` is what an HTTP handler would answer. */
export class Refused extends Error {
  constructor(
    readonly reason: string,
    message: string,
    readonly status: number,
    readonly retryable: boolean,
    readonly retryAfterMs?: number,
  ) {
    super(message);
    this.name = 'Refused';
  }
}

export interface Options {
  tenant: string;
  /** Gives the grant for a request; `body` is what will be sent. Defaults to none, which only AUTHZ_MODE=dev takes. */
  grant?: (about: { job?: string; conversation?: string }, body: Uint8Array) => string;
  /** How long one publish or question may take, in milliseconds. Defaults to 5000. */
  timeout?: number;
}

const text = new TextDecoder();
const bytes = new TextEncoder();
const token = /^[A-Za-z0-9_-]{1,64}$/;

// How long a hole may stand before history is asked, how often it is asked before the hole is said to be one, and how
// long a silence may last before history is asked whether something was missed.
const holeWait = 500;
const holeTries = 3;
const idleCheck = 30_000;

export class Wakebus {
  constructor(
    private readonly nc: NatsConnection,
    private readonly options: Options,
  ) {
    this.name(options.tenant, 'tenant');
  }

  /** Stores a command and returns its job id. Throws Refused; a time-out throws nats.js's own error. */
  async exec(request: Omit<ExecRequest, 'v' | 'job_id'> & { job_id?: string }): Promise<string> {
    const body = { v: 1 as const, job_id: randomUUID(), ...request };
    await this.publish(`sandbox.exec.${this.options.tenant}`, body, { job: body.job_id, conversation: body.conversation_id });
    return body.job_id;
  }

  /** Ends a conversation: what runs is canceled and its sandbox torn down. Returns the job id of the end. */
  async end(conversation: string, job: string = randomUUID()): Promise<string> {
    const body = { v: 1 as const, job_id: job, conversation_id: conversation };
    await this.publish(`sandbox.end.${this.options.tenant}`, body, { job, conversation });
    return job;
  }

  async cancelJob(job: string, why?: string): Promise<void> {
    await this.publish(`sandbox.cancel.${this.options.tenant}.job.${this.name(job, 'job')}`, why ? { why } : undefined, { job });
  }

  /** Cancels what was published for the conversation so far, queued or running. */
  async cancelConversation(conversation: string, why?: string): Promise<void> {
    const subject = `sandbox.cancel.${this.options.tenant}.conversation.${this.name(conversation, 'conversation')}`;
    await this.publish(subject, why ? { why } : undefined, { conversation });
  }

  /**
   * The events of a run from `fromSeq` on, each once and in order: what is stored first, then what comes. It ends after
   * the result. What retention has removed is told by a `gap` event. Listening may begin before the request is published;
   * `listening` is called once nothing can be missed any more.
   */
  events(job: string, from: { run?: number; fromSeq?: number; signal?: AbortSignal; listening?: () => void } = {}): AsyncGenerator<Event> {
    return this.read(this.name(job, 'job'), from); // a bad id is told here, not at the first event
  }

  private async *read(job: string, from: { run?: number; fromSeq?: number; signal?: AbortSignal; listening?: () => void }): AsyncGenerator<Event> {
    const run = from.run ?? 0;
    const sub = this.nc.subscribe(`sandbox.reply.${this.options.tenant}.${job}.${run}.*`);
    const live = new Inbox(sub);
    const sorter = new Sorter(from.fromSeq ?? 1);
    try {
      await this.nc.flush();
      from.listening?.();
      let ask = true;
      let tries = 0;
      let hole: number | undefined;
      for (;;) {
        if (from.signal?.aborted) return;
        if (ask) {
          const before = sorter.next;
          let more = true;
          while (more) {
            const page = await this.history(job, { run, fromSeq: sorter.next }).catch((error: unknown) => error as Error);
            // No worker answers at this moment; the hole stays, and is asked about again.
            if (page instanceof Error) break;
            for (const e of page.events) sorter.push(e);
            more = page.more && page.events.length > 0;
          }
          tries = sorter.next === before && sorter.missing ? tries + 1 : 0;
          if (tries >= holeTries) {
            const skipped = sorter.skip();
            tries = 0;
            yield { kind: 'gap', job, run, seq: skipped, stdoutOffset: 0, stderrOffset: 0, body: { stream: 'both', bytes: null, why: 'retention' } satisfies Gap };
          }
        }
        for (const e of sorter.take()) {
          yield e;
          if (e.kind === 'result') return;
        }
        hole = sorter.missing ? (hole ?? Date.now()) : undefined;
        const wait = hole === undefined ? idleCheck : Math.max(1, hole + holeWait - Date.now());
        const msg = await live.next(wait, from.signal);
        ask = msg === undefined;
        if (ask) hole = undefined;
        if (msg) {
          const e = decode(msg);
          if (e) sorter.push(e);
        }
      }
    } finally {
      live.close();
    }
  }

  /** Publishes a command and gives its events: listening begins first. */
  async *run(request: Parameters<Wakebus['exec']>[0], signal?: AbortSignal): AsyncGenerator<Event> {
    const job = request.job_id ?? randomUUID();
    let heard!: () => void;
    const listening = new Promise<void>((resolve) => (heard = resolve));
    const left = new AbortController();
    const events = this.events(job, { listening: () => heard(), signal: signal ? AbortSignal.any([signal, left.signal]) : left.signal });
    const first = events.next();
    try {
      await Promise.race([listening, first]);
      await this.exec({ ...request, job_id: job });
      for (let at = await first; !at.done; at = await events.next()) yield at.value;
    } finally {
      // A generator that waits for an event takes no notice of return() before one comes.
      left.abort();
      await first.catch(() => undefined);
      await events.return(undefined);
    }
  }

  /** One page of a run's stored events, at most 256 or 4 MiB. */
  async history(job: string, from: { run?: number; fromSeq?: number } = {}): Promise<{ events: Event[]; lastSeq: number; more: boolean }> {
    const ask = { v: 1, job_id: this.name(job, 'job'), run: from.run ?? 0, from_seq: from.fromSeq ?? 1 };
    const answers = await this.nc.requestMany(`sandbox.history.${this.options.tenant}`, JSON.stringify(ask), {
      strategy: 'sentinel', maxWait: this.timeout, noMux: true,
    });
    const events: Event[] = [];
    for await (const msg of answers) {
      if (msg.data.length === 0) {
        refuse(msg.headers);
        return { events, lastSeq: Number(msg.headers?.get('Wb-Last-Seq') ?? 0), more: msg.headers?.get('Wb-More') === 'true' };
      }
      const e = decode(msg);
      if (e) events.push(e);
    }
    throw new Error(`history of ${job} did not end within ${this.timeout} ms`);
  }

  async jobs(about: { conversation_id?: string; state?: 'queued' | 'running' | 'ended'; limit?: number } = {}): Promise<JobsAnswer> {
    const msg = await this.ask(`sandbox.jobs.${this.options.tenant}`, bytes.encode(JSON.stringify({ v: 1, ...about })), headers());
    return JSON.parse(text.decode(msg.data)) as JobsAnswer;
  }

  async readFile(conversation: string, path: string): Promise<{ data: Uint8Array; size: number; mode: string; truncated: boolean }> {
    const body = bytes.encode(JSON.stringify({ v: 1, conversation_id: conversation, path }));
    const msg = await this.ask(`sandbox.file.read.${this.options.tenant}`, body, this.granted({ conversation }, body), 120_000);
    return { data: msg.data, size: Number(msg.headers?.get('Wb-Size')), mode: msg.headers?.get('Wb-Mode') ?? '', truncated: msg.headers?.get('Wb-Truncated') === 'true' };
  }

  async writeFile(conversation: string, path: string, data: Uint8Array, mode?: string): Promise<FileWritten> {
    const h = this.granted({ conversation }, data);
    h.set('Wb-Params', JSON.stringify({ v: 1, conversation_id: conversation, path, ...(mode ? { mode } : {}) }));
    const msg = await this.ask(`sandbox.file.write.${this.options.tenant}`, data, h, 120_000);
    return JSON.parse(text.decode(msg.data)) as FileWritten;
  }

  private get timeout(): number {
    return this.options.timeout ?? 5000;
  }

  private name(value: string, what: string): string {
    // What is no single token would reach another subject.
    if (!token.test(value)) throw new TypeError(`${what} must be 1 to 64 letters, digits, _ or -`);
    return value;
  }

  private granted(about: { job?: string; conversation?: string }, body: Uint8Array): MsgHdrs {
    const h = headers();
    const grant = this.options.grant?.(about, body);
    if (grant) h.set('Sandbox-Grant', grant);
    return h;
  }

  private async ask(subject: string, body: Uint8Array, h: MsgHdrs, timeout = this.timeout): Promise<Msg> {
    const msg = await this.nc.request(subject, body, { timeout, headers: h });
    refuse(msg.headers);
    return msg;
  }

  /** Stores a message; the broker's own answer says whether it did. */
  private async publish(subject: string, body: unknown, about: { job?: string; conversation?: string }): Promise<void> {
    const data = body === undefined ? new Uint8Array() : bytes.encode(JSON.stringify(body));
    const msg = await this.nc.request(subject, data, { timeout: this.timeout, headers: this.granted(about, data) });
    const answer = JSON.parse(text.decode(msg.data)) as { error?: { err_code?: number; description?: string } };
    if (!answer.error) return;
    const why = answer.error.description ?? 'refused';
    if (answer.error.err_code === 10077) throw new Refused('rate_limited', 'The queue of this tenant is full.', 429, true, 1000);
    if (answer.error.err_code === 10054) throw new Refused('content_too_large', 'The request is larger than the queue takes.', 413, false);
    throw new Refused('worker_unavailable', why, 503, true, 1000);
  }
}

/** Puts events in order. What is above the next sequence is held, the result too, until all below it are in. */
export class Sorter {
  private readonly held = new Map<number, Event>();
  private readonly ready: Event[] = [];
  constructor(public next: number) {}

  push(e: Event): void {
    if (e.seq < this.next || this.held.has(e.seq)) return;
    this.held.set(e.seq, e);
    for (let at = this.held.get(this.next); at; at = this.held.get(this.next)) {
      this.held.delete(this.next++);
      this.ready.push(at);
    }
  }

  take(): Event[] {
    return this.ready.splice(0);
  }

  get missing(): boolean {
    return this.held.size > 0;
  }

  /** Gives up on what is below the first held event; returns the first sequence that is lost. */
  skip(): number {
    const lost = this.next;
    const first = this.held.get(Math.min(...this.held.keys()));
    if (first) {
      this.next = first.seq;
      this.held.delete(first.seq);
      this.push(first);
    }
    return lost;
  }
}

/** A subscription that can be waited on for a time. */
class Inbox {
  private readonly queue: Msg[] = [];
  private wake: (() => void) | undefined;
  constructor(private readonly sub: Subscription) {
    void (async () => {
      for await (const msg of sub) {
        // A reader that does not keep up loses the newest; the hole shows, and history fills it.
        if (this.queue.length < 8192) this.queue.push(msg);
        this.wake?.();
      }
    })();
  }

  async next(wait: number, signal?: AbortSignal): Promise<Msg | undefined> {
    if (this.queue.length === 0 && !signal?.aborted) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, wait);
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
        signal?.addEventListener('abort', this.wake, { once: true });
      });
      if (this.wake) signal?.removeEventListener('abort', this.wake);
      this.wake = undefined;
    }
    return this.queue.shift();
  }

  close(): void {
    this.sub.unsubscribe();
  }
}

function decode(msg: Msg): Event | undefined {
  const h = msg.headers;
  const kind = h?.get('Wb-Event');
  if (!h || !kind) return undefined;
  const event: Event = {
    kind, job: h.get('Wb-Job'), run: Number(h.get('Wb-Run')), seq: Number(h.get('Wb-Seq')),
    stdoutOffset: Number(h.get('Wb-Stdout-Offset') || 0), stderrOffset: Number(h.get('Wb-Stderr-Offset') || 0),
  };
  if (kind === 'stdout' || kind === 'stderr') return { ...event, data: msg.data };
  return { ...event, body: JSON.parse(text.decode(msg.data)) };
}

function refuse(h: MsgHdrs | undefined): void {
  const code = h?.get('Nats-Service-Error-Code');
  if (!h || !code) return;
  const status = code === 'rate_limited' ? 429 : code === 'worker_unavailable' ? 503 : code === 'not_found' ? 404 : code === 'invalid_request' ? 400 : 403;
  const after = h.get('Wb-Retry-After-Ms');
  throw new Refused(code, h.get('Nats-Service-Error'), status, h.get('Wb-Retryable') === 'true', after ? Number(after) : undefined);
}

/**
 * Signs a grant: who asks, for which tenant, and that they may. `key` is an Ed25519 private key; its public half stands
 * under `kid` in the JWK set that workers read. Bind it as closely as the request is known: job, conversation, and by
 * `body` to its very bytes.
 */
export function mintGrant(
  key: KeyObject,
  kid: string,
  claims: Pick<Grant, 'sub' | 'tenant'> & Partial<Pick<Grant, 'tier' | 'drive' | 'agent_page' | 'conversation' | 'page' | 'job' | 'open' | 'verdict' | 'origin'>>,
  more: { body?: Uint8Array; seconds?: number; now?: number } = {},
): string {
  const now = Math.floor((more.now ?? Date.now()) / 1000);
  const grant: Grant = { iss: 'web', aud: 'wakebus', iat: now, exp: now + (more.seconds ?? 300), jti: randomUUID(), verdict: 'allow', ...claims };
  if (more.body) grant.req = createHash('sha256').update(more.body).digest('hex');
  const part = (x: unknown) => Buffer.from(JSON.stringify(x)).toString('base64url');
  const signed = `${part({ alg: 'EdDSA', typ: 'JWT', kid })}.${part(grant)}`;
  return `${signed}.${sign(null, Buffer.from(signed), key).toString('base64url')}`;
}

// --- types, written by types.mjs from docs/schema ---

/** Body of sandbox.exec[.<tenant>]: run a command in a conversation's sandbox. */
export type ExecRequest = {
  /** Version of the contract. */
  v: 1;
  /** The idempotency key: one id, one run, one result. */
  job_id: string;
  /** Whose sandbox. */
  conversation_id: string;
  /** The drive that the conversation belongs to. */
  drive_id?: string;
  /** Program and arguments. 16 KiB in all, joined by NUL. */
  argv?: (string)[];
  /** A script for bash -c (sh -c where there is no bash). At most 16 KiB. */
  shell?: string;
  /** Working directory, in /workspace. Defaults to /workspace. */
  cwd?: string;
  /** Variables above the base environment; 32 KiB in all. */
  env?: Record<string, string>;
  /** Standard input, base64 of at most 64 KiB. Without it stdin is closed. */
  stdin?: string;
  /** How long it may run, in milliseconds of wall time from open. */
  timeout_ms?: number;
  /** How much output is delivered, in bytes; at most the hard cap (64 MiB). */
  stream_bytes?: number;
  /** At the output cap: go on and deliver the tail at the end, or stop the command. */
  on_output_limit?: "trim" | "kill";
  /** It must start before this, at most 12 hours away; with a zone. Required with on_limit wait. */
  deadline?: string;
  /** With all slots taken: be denied, or wait until the deadline. */
  on_limit?: "deny" | "wait";
  /** serial: one at a time in this conversation. */
  order?: "parallel" | "serial";
  /** May revive an ended session. */
  fresh_start?: boolean;
};

/** Body of sandbox.end.<tenant>: the session is over, tear its sandbox down. */
export type EndRequest = {
  /** Version of the contract. */
  v: 1;
  /** The idempotency key. */
  job_id: string;
  conversation_id?: string;
  page_id?: string;
  drive_id?: string;
};

/** Body of the state event result: the one event that ends a run. */
export type Result = {
  outcome: "exited" | "timed_out" | "output_limit" | "canceled" | "lost" | "denied" | "failed" | "expired" | "opened" | "ended";
  reason?: Reason;
  /** A sentence for a person. */
  message?: string;
  /** The class of the failure. */
  class?: string;
  /** Only with exited. */
  exit_code?: number;
  /** With exited and a code above 128. */
  signal?: string;
  /** Best effort: out of memory; killed, may be out of memory; disk full. */
  hint?: string;
  exit_source?: "frame" | "file";
  /** Publish again with a new job_id; nothing ran. */
  retryable?: boolean;
  retry_after_ms?: number;
  /** The dead letter's id: tenant/job. */
  dead_letter?: string;
  limit_ms?: number;
  stopped?: "confirmed" | "not_confirmed";
  by?: string;
  sandbox?: string;
  plan?: "create" | "resume" | "noop" | "teardown" | "deny";
  why?: "new" | "adopted" | "warm" | "idle" | "hard_expiry" | "gone" | "fresh_start" | "session_end" | "kill_switch_off" | "misconfigured" | "invalid_request" | "app_admin_required" | "no_drive_access" | "insufficient_role" | "no_agent_access" | "page_not_found" | "no_edit_access" | "drive_not_found" | "authorization_expired" | "empty_command" | "command_too_large" | "blocked_metadata_access" | "path_escape" | "content_too_large" | "concurrency_limit" | "rate_limited" | "session_ended" | "provision_failed" | "provision_rate_limited" | "provision_conflict" | "workspace_unwritable" | "execution_failed" | "crash_loop" | "not_found" | "worker_unavailable" | "error";
  /** Our create made a new sandbox in this run. */
  fresh: boolean;
  woke?: "warm" | "cold" | "none" | "unknown";
  stdout_bytes: number;
  stderr_bytes: number;
  produced_bytes?: number;
  truncated: boolean;
  /** 32 KiB of head and of tail for each stream. */
  output?: {
    stdout: {
      head: string;
      /** Absent when head is all. */
      tail?: string;
    };
    stderr: {
      head: string;
      /** Absent when head is all. */
      tail?: string;
    };
  };
  timing: Timing;
  /** With opened: the lease that waits for the gateway. */
  lease?: {
    id: string;
    fence: number;
    expires: string;
  };
  /** With ended: the teardown is not confirmed yet. */
  pending?: boolean;
  /** With ended: the jobs that were canceled. */
  canceled?: (string)[];
  run: Record<string, unknown>;
};

/** Body of the output event gap: bytes that are not there. */
export type Gap = {
  stream: "stdout" | "stderr" | "both";
  /** How many; null where that cannot be known; 0 where another owner went on and nothing is missing. */
  bytes: number | null;
  why: "cap" | "takeover" | "retention";
};

/** Body of the state event waiting: nobody owns the run until then. */
export type Waiting = {
  for: "limit" | "rate" | "capacity" | "link" | "serial" | "redis" | "worker";
  scope?: string;
  until: string;
  why?: string;
  run: Record<string, unknown>;
};

/** Body of the state event planned: what happens to the sandbox. */
export type Planned = {
  plan: "create" | "resume" | "noop" | "teardown" | "deny";
  why: "new" | "adopted" | "warm" | "idle" | "hard_expiry" | "gone" | "fresh_start" | "session_end" | "kill_switch_off" | "misconfigured" | "invalid_request" | "app_admin_required" | "no_drive_access" | "insufficient_role" | "no_agent_access" | "page_not_found" | "no_edit_access" | "drive_not_found" | "authorization_expired" | "empty_command" | "command_too_large" | "blocked_metadata_access" | "path_escape" | "content_too_large" | "concurrency_limit" | "rate_limited" | "session_ended" | "provision_failed" | "provision_rate_limited" | "provision_conflict" | "workspace_unwritable" | "execution_failed" | "crash_loop" | "not_found" | "worker_unavailable" | "error";
  run: Record<string, unknown>;
};

/** Body of the state event stopping: the owner is about to stop the command; the outcome is this reason. */
export type Stopping = {
  reason: "timeout" | "cancel" | "output_limit" | "revoked" | "session_ended";
  by?: string;
  run: Record<string, unknown>;
};

/** Answer of sandbox.jobs.<tenant>. */
export type JobsAnswer = {
  jobs: ({
    job_id: string;
    run: number;
    kind?: "exec" | "terminal" | "end";
    conversation_id?: string;
    page_id?: string;
    state: "queued" | "running" | "ended";
    /** Empty while no worker has taken the request. */
    last_event: "" | "accepted" | "waiting" | "planned" | "dialing" | "started" | "stopping" | "taken_over" | "heartbeat" | "result";
    last_at?: string;
    waits_for?: "limit" | "rate" | "capacity" | "link" | "serial" | "redis" | "worker";
    outcome?: "exited" | "timed_out" | "output_limit" | "canceled" | "lost" | "denied" | "failed" | "expired" | "opened" | "ended";
    queued_at?: string;
    started_at?: string;
  })[];
  /** The search ended at its bound; older jobs may be missing. */
  partial?: boolean;
};

/** Answer of sandbox.file.write.<tenant>. */
export type FileWritten = {
  path: string;
  size: number;
  sha256: string;
};

/** Claims of the JWT in header Sandbox-Grant: EdDSA, with a kid. */
export type Grant = {
  /** ops: an operator's replay. */
  iss: "web" | "ops";
  aud: "wakebus" | ("wakebus")[];
  iat: number;
  exp: number;
  jti: string;
  /** The user. */
  sub: string;
  /** Equals the subject's token; _ where the subject has none. */
  tenant: string;
  /** Defaults to free. */
  tier?: "free" | "pro" | "founder" | "business";
  drive?: string;
  /** The web origin that a ticket is bound to. */
  origin?: string;
  agent_page?: string;
  conversation?: string;
  page?: string;
  job?: string;
  open?: string;
  verdict: "allow" | Reason;
  /** SHA-256 of the request's body. */
  req?: string;
};

/** A stable code that says why something was denied or failed. The set is closed. */
export type Reason = "kill_switch_off" | "misconfigured" | "invalid_request" | "app_admin_required" | "no_drive_access" | "insufficient_role" | "no_agent_access" | "page_not_found" | "no_edit_access" | "drive_not_found" | "authorization_expired" | "empty_command" | "command_too_large" | "blocked_metadata_access" | "path_escape" | "content_too_large" | "concurrency_limit" | "rate_limited" | "session_ended" | "provision_failed" | "provision_rate_limited" | "provision_conflict" | "workspace_unwritable" | "execution_failed" | "crash_loop" | "not_found" | "worker_unavailable" | "error";

/** How long each stage took, in milliseconds. */
export type Timing = {
  queued: number;
  authorize: number;
  lease: number;
  plan: number;
  provision: number;
  wake: number;
  run: number;
  total: number;
  attempts: number;
  /** True when the run changed hands after its command was dialled. */
  detached: boolean;
};

// --- end of types ---
