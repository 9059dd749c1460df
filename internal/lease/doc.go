// Package lease counts who may run at once: leases on Redis that bound how many
// commands, terminals and file calls a user, a tenant and the fleet hold, and
// that nobody keeps longer than one TTL after dying.
//
// One sorted set per scope (member: lease id, score: expiry by the server's
// clock) is the only truth; a grant adds its id to every scope or to none, in
// one script and one round trip. The journal decides who runs, the lease only
// how many: a lease lost to an outage kills nothing.
//
//	            Acquire (granted | transferred)
//	                       │
//	                       ▼   no confirmation for TTL-Margin
//	    ┌─renewed──────▶ Held ─────────────────────────▶ Unconfirmed
//	    │                │  ▲                                 │
//	    └────────────────┘  └── renewed or reattached ────────┘
//	                     │      (over by one if full, counted)
//	Release · Forget · Extend · transferred · maximum hold · revoked at once
//	                     ▼
//	                  Detached (renewed no more)
//
// A lease's Context ends only when its holder must stop or be silent: revoked,
// maximum hold, transferred. While any lease is Unconfirmed, or Redis does not
// answer, [Manager.Admit] is false and nothing new is granted.
//
// The same scripts carry the order of waiting jobs, the election of leaders,
// the shared gate before the provider, and a user's budget of runs.
//
// All keys share one hash tag and so one Redis Cluster slot: a user's, a
// tenant's and the global scope cannot be changed atomically over slots.
package lease
