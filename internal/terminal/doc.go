// Package terminal is the gateway: it keeps one shell per page open on a sandbox and lends it to the browsers that come
// and go.
//
// A session is one shell as this gateway sees it. Its output is drained into a ring of numbered bytes, whoever watches;
// each viewer reads the ring at its own pace, so that a slow one gets a gap and stalls nobody. Which gateway answers for
// a shell stands in the page's link: that gateway is its holder, renews its lease and gives it back. Another gateway
// that meets the same page attaches to the same shell as a guest, and becomes the holder when the first is gone.
//
//	                     key, viewer
//	opening ──▶ live ◀───────────────── dormant
//	   │         │  ▲                      ▲
//	   │    drop │  │ attached             │ idle, unreachable, nobody there
//	   │         ▼  │                      │
//	   │       reattaching ────────────────┤
//	   ▼                                   ▼
//	 ended ◀──────── exit, gone, revoked, handed over, released
package terminal
