package terminal_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// shell is a program in a fake sandbox: it prints what the test says and remembers what is typed.
type shell struct {
	id      terminal.Shell
	mu      sync.Mutex
	cond    *sync.Cond
	history []byte
	typed   []byte
	size    frame.Size
	sizes   []frame.Size // all that it was told
	ptys    map[*pty]struct{}
	code    *int
	deaf    bool // writes block
}

func newShell(id terminal.Shell) *shell {
	s := &shell{id: id, ptys: map[*pty]struct{}{}}
	s.cond = sync.NewCond(&s.mu)
	return s
}

// print makes the shell's output longer.
func (s *shell) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, text...)
	for p := range s.ptys {
		p.out = append(p.out, text...)
	}
	s.cond.Broadcast()
}

// exit ends the shell.
func (s *shell) exit(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code = &code
	s.cond.Broadcast()
}

// drop breaks every attachment; the shell goes on.
func (s *shell) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.ptys {
		p.broken = true
		delete(s.ptys, p)
	}
	s.cond.Broadcast()
}

// until waits for a condition on the shell.
func (s *shell) until(ok func(*shell) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !ok(s) {
		s.cond.Wait()
	}
}

// taken waits until the gateway has read everything that was printed.
func (s *shell) taken() {
	s.until(func(s *shell) bool {
		for p := range s.ptys {
			return len(p.out) == 0
		}
		return false
	})
}

func (s *shell) set(change func(*shell)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
	s.cond.Broadcast()
}

func (s *shell) input() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.typed)
}

// pty is one attachment to a shell.
type pty struct {
	s      *shell
	out    []byte
	broken bool
}

func (s *shell) attach(replay []byte) *pty {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &pty{s: s, out: slices.Clone(replay)}
	s.ptys[p] = struct{}{}
	s.cond.Broadcast()
	return p
}

func (p *pty) Read(b []byte) (int, error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	for {
		switch {
		case p.broken:
			return 0, errors.New("socket closed")
		case len(p.out) > 0:
			n := copy(b, p.out)
			p.out = p.out[n:]
			p.s.cond.Broadcast()
			return n, nil
		case p.s.code != nil:
			return 0, io.EOF
		}
		p.s.cond.Wait()
	}
}

func (p *pty) Write(b []byte) (int, error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	for p.s.deaf && !p.broken {
		p.s.cond.Wait()
	}
	if p.broken {
		return 0, errors.New("socket closed")
	}
	p.s.typed = append(p.s.typed, b...)
	p.s.cond.Broadcast()
	return len(b), nil
}

func (p *pty) Resize(size frame.Size) error {
	p.s.set(func(s *shell) { s.size = size; s.sizes = append(s.sizes, size) })
	return nil
}

func (p *pty) Close() error {
	p.s.set(func(s *shell) { p.broken = true; delete(s.ptys, p) })
	return nil
}

func (p *pty) Exit() (int, bool) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.s.code == nil {
		return 0, false
	}
	return *p.s.code, true
}

func (p *pty) Shell() terminal.Shell { return p.s.id }

// world is everything outside the gateway, shared by the gateways of one test.
type world struct {
	mu      sync.Mutex
	cond    *sync.Cond
	now     time.Time
	shells  map[string]*shell // by id
	order   []*shell
	records map[terminal.Page]terminal.Record
	revs    map[terminal.Page]uint64
	leases  map[string]*fakeLease
	opens   []terminal.OpenRequest
	calls   map[string]int
	fail    map[string]error // by call: the next ones fail
	limit   int              // of live leases; 0 = none
	revoked map[string]error // by user: the answer of Recheck
	used    map[string]bool
	audit   []string
	replay  func([]byte) []byte // what an attachment replays of the history
	fence   int64
	gate    chan struct{} // when set, opens wait for it
}

func newWorld() *world {
	w := &world{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), shells: map[string]*shell{}, records: map[terminal.Page]terminal.Record{},
		revs: map[terminal.Page]uint64{}, leases: map[string]*fakeLease{}, calls: map[string]int{}, fail: map[string]error{},
		revoked: map[string]error{}, used: map[string]bool{}, replay: func(b []byte) []byte { return b }}
	w.cond = sync.NewCond(&w.mu)
	return w
}

// enter counts a call and gives the failure that the test wants.
func (w *world) enter(call string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[call]++
	w.cond.Broadcast()
	return w.fail[call]
}

func (w *world) set(change func(*world)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
	w.cond.Broadcast()
}

func (w *world) until(ok func(*world) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !ok(w) {
		w.cond.Wait()
	}
}

func (w *world) count(call string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[call]
}

func (w *world) time() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// shell waits for the n-th shell that was opened.
func (w *world) shell(n int) *shell {
	w.until(func(w *world) bool { return len(w.order) > n })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.order[n]
}

// live counts the slots in use.
func (w *world) live() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.liveLocked()
}

func (w *world) liveLocked() int {
	n := 0
	for _, l := range w.leases {
		if l.held {
			n++
		}
	}
	return n
}

// side is one gateway's view of the world.
type side struct {
	*world
	gateway string
}

// Admit takes tickets of the form user:role:page[:n]; each is good once.
func (w side) Admit(_ context.Context, ticket, _, page string) (terminal.Visitor, error) {
	if err := w.enter("admit"); err != nil {
		return terminal.Visitor{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	parts := strings.Split(ticket, ".")
	if len(parts) < 3 || w.used[ticket] {
		return terminal.Visitor{}, &terminal.Refused{Reason: plan.ReasonAuthorizationExpired, Detail: "used or malformed"}
	}
	w.used[ticket] = true
	return terminal.Visitor{Page: terminal.Page{Tenant: "t", ID: parts[2]}, User: parts[0], Tier: plan.TierFree,
		Role: terminal.Role(parts[1]), Grant: ticket}, nil
}

func (w side) Recheck(_ context.Context, v terminal.Visitor) error {
	if err := w.enter("recheck"); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revoked[v.User]
}

func (w side) Renew(_ context.Context, v terminal.Visitor, grant string) (terminal.Visitor, error) {
	if err := w.enter("renew"); err != nil {
		return terminal.Visitor{}, err
	}
	if !strings.HasPrefix(grant, v.User+".") {
		return terminal.Visitor{}, &terminal.Refused{Reason: plan.ReasonInvalidRequest}
	}
	v.Grant = grant
	return v, nil
}

func (w side) Terminal(_ context.Context, kind, _ string, v terminal.Visitor, _, outcome string) {
	w.set(func(w *world) { w.audit = append(w.audit, kind+" "+v.User+" "+outcome) })
}

// fakeGateways separates method names that two interfaces share.
type opener struct{ side }

func (w opener) Open(ctx context.Context, req terminal.OpenRequest) (terminal.Opened, error) {
	if err := w.enter("open"); err != nil {
		return terminal.Opened{}, err
	}
	w.mu.Lock()
	gate := w.gate
	w.opens = append(w.opens, req)
	w.cond.Broadcast()
	full := w.limit > 0 && w.liveLocked() >= w.limit
	if !full {
		w.fence++
		w.leases["t."+req.ID+".0.1"] = &fakeLease{world: w.world, id: "t." + req.ID + ".0.1", fence: w.fence, held: true}
	}
	fence := w.fence
	w.mu.Unlock()
	if full {
		return terminal.Opened{}, &terminal.Refused{Reason: plan.ReasonConcurrencyLimit}
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return terminal.Opened{}, ctx.Err()
		}
	}
	return terminal.Opened{Sandbox: "sb", Lease: "t." + req.ID + ".0.1", Fence: fence}, nil
}

type shells struct{ side }

func (w shells) Wake(context.Context, string) error { return w.enter("wake") }

func (w shells) Open(_ context.Context, _ terminal.Visitor, _ string, size frame.Size, _ time.Duration) (terminal.PTY, error) {
	if err := w.enter("pty"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := newShell(terminal.Shell{ID: fmt.Sprint(len(w.order) + 10), Created: int64(len(w.order))})
	s.size = size
	w.shells[s.id.ID] = s
	w.order = append(w.order, s)
	w.cond.Broadcast()
	return s.attach(nil), nil
}

func (w shells) Attach(_ context.Context, _ string, id terminal.Shell) (terminal.PTY, error) {
	if err := w.enter("attach"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	s, replay := w.shells[id.ID], w.replay
	w.mu.Unlock()
	if s == nil || s.id != id {
		return nil, terminal.ErrShellGone
	}
	s.mu.Lock()
	gone, history := s.code != nil, slices.Clone(s.history)
	s.mu.Unlock()
	if gone {
		return nil, terminal.ErrShellGone
	}
	return s.attach(replay(history)), nil
}

func (w shells) Kill(_ context.Context, _ string, id terminal.Shell) error {
	if err := w.enter("kill"); err != nil {
		return err
	}
	w.mu.Lock()
	s := w.shells[id.ID]
	w.mu.Unlock()
	if s != nil {
		s.exit(137)
	}
	return nil
}

type records struct{ side }

func (w records) Load(_ context.Context, p terminal.Page) (terminal.Record, uint64, error) {
	if err := w.enter("load"); err != nil {
		return terminal.Record{}, 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.revs[p] == 0 {
		return terminal.Record{}, 0, terminal.ErrNoRecord
	}
	return w.records[p], w.revs[p], nil
}

func (w records) Save(_ context.Context, p terminal.Page, rec terminal.Record, rev uint64) (uint64, error) {
	if err := w.enter("save"); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.revs[p] != rev {
		return 0, terminal.ErrConflict
	}
	w.records[p] = rec
	w.revs[p]++
	w.cond.Broadcast()
	return w.revs[p], nil
}

// fakeLease is one slot. The world's lock protects it.
type fakeLease struct {
	world  *world
	id     string
	owner  string
	fence  int64
	held   bool
	dead   bool // its holder has missed a renewal
	cancel context.CancelCauseFunc
}

type leases struct{ side }

func (w leases) Take(_ context.Context, id string, _ terminal.Visitor, _ string, force bool) (terminal.Lease, error) {
	if err := w.enter("take"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.leases[id]
	if l == nil || !l.held {
		if !force && w.limit > 0 && w.liveLocked() >= w.limit {
			return nil, &terminal.Refused{Reason: plan.ReasonConcurrencyLimit}
		}
		l = &fakeLease{world: w.world, id: id}
		w.leases[id] = l
	}
	if l.cancel != nil {
		l.cancel(&terminal.LeaseEnded{Transferred: true, Reason: "transferred"})
	}
	w.fence++
	l.owner, l.fence, l.held, l.dead = w.gateway, w.fence, true, false
	ctx, cancel := context.WithCancelCause(context.Background())
	l.cancel = cancel
	w.cond.Broadcast()
	return &taken{l: l, fence: w.fence, ctx: ctx}, nil
}

func (w leases) Drop(_ context.Context, id string, fence int64) error {
	if err := w.enter("drop"); err != nil {
		return err
	}
	w.set(func(w *world) {
		if l := w.leases[id]; l != nil && l.fence == fence {
			l.held = false
		}
	})
	return nil
}

func (w leases) Live(_ context.Context, id string) (bool, error) {
	if err := w.enter("live"); err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.leases[id]
	return l != nil && l.held, nil
}

func (w leases) Renewed(ctx context.Context, id string) (bool, error) {
	live, err := w.Live(ctx, id)
	w.mu.Lock()
	defer w.mu.Unlock()
	return live && !w.leases[id].dead, err
}

// taken is a holder's handle.
type taken struct {
	l     *fakeLease
	fence int64
	ctx   context.Context
}

func (t *taken) Fence() int64          { return t.fence }
func (t *taken) Done() context.Context { return t.ctx }
func (t *taken) Forget()               { _ = t.l.world.enter("forget") }
func (t *taken) Release(context.Context) error {
	if err := t.l.world.enter("release"); err != nil {
		return err
	}
	t.l.world.set(func(*world) {
		if t.l.fence == t.fence {
			t.l.held = false
		}
	})
	return nil
}
