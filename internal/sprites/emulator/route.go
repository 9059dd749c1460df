package emulator

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// socketMethod stands for GET with an upgrade.
const socketMethod = "WS"

// route is one call of the API.
type route struct {
	method, path, name string
	wakes              bool // acquires the Sprite before the handler
	handle             func(*exchange)
}

// spritePath begins every call that is about one Sprite.
const spritePath = "/v1/sprites/{name}"

// routes is the whole API (Sprites API reference; SDK sources).
func routes() []route {
	all := controlRoutes()
	all = append(all, execRoutes()...)
	all = append(all, fileRoutes()...)
	all = append(all, policyRoutes()...)
	all = append(all, socketRoutes()...)
	all = append(all, checkpointRoutes()...)
	return append(all, serviceRoutes()...)
}

func controlRoutes() []route {
	return []route{
		{"POST", "/v1/organizations/{org}/tokens", "token.create", false, (*exchange).createToken},
		{"POST", "/v1/sprites", "sprite.create", false, (*exchange).createSprite},
		{"GET", "/v1/sprites", "sprite.list", false, (*exchange).listSprites},
		{"GET", spritePath, "sprite.get", false, (*exchange).getSprite},
		{"PUT", spritePath, "sprite.update", false, (*exchange).updateSprite},
		{"DELETE", spritePath, "sprite.delete", false, (*exchange).deleteSprite},
		{"POST", spritePath + "/upgrade", "sprite.upgrade", false, (*exchange).upgradeSprite},
		{"POST", spritePath + "/restart", "sprite.restart", false, (*exchange).restartSprite},
		{"GET", spritePath + "/check", "sprite.check", false, (*exchange).checkSprite},
	}
}

func execRoutes() []route {
	return []route{
		{socketMethod, spritePath + "/exec", "exec.ws", true, (*exchange).execSocket},
		{socketMethod, spritePath + "/exec/{id}", "exec.attach", true, (*exchange).attachSocket},
		{"HEAD", spritePath + "/exec", "exec.probe", false, (*exchange).probe},
		{"GET", spritePath + "/exec", "exec.list", true, (*exchange).listSessions},
		{"GET", spritePath + "/exec/{id}", "exec.get", true, (*exchange).getSession},
		{"POST", spritePath + "/exec", "exec.http", true, (*exchange).execHTTP},
		{"POST", spritePath + "/exec/{id}/kill", "exec.kill", true, (*exchange).killSession},
	}
}

func fileRoutes() []route {
	return []route{
		{"GET", spritePath + "/fs/read", "fs.read", true, (*exchange).readFile},
		{"PUT", spritePath + "/fs/write", "fs.write", true, (*exchange).writeFile},
		{"GET", spritePath + "/fs/list", "fs.list", true, (*exchange).listFiles},
		{"DELETE", spritePath + "/fs/delete", "fs.delete", true, (*exchange).deleteFile},
		{"POST", spritePath + "/fs/rename", "fs.rename", true, (*exchange).renameFile},
		{"POST", spritePath + "/fs/copy", "fs.copy", true, (*exchange).copyFile},
		{"POST", spritePath + "/fs/chmod", "fs.chmod", true, (*exchange).chmodFile},
		{"POST", spritePath + "/fs/chown", "fs.chown", true, (*exchange).chownFile},
	}
}

func policyRoutes() []route {
	return []route{
		{"GET", spritePath + "/policy/network", "policy.network.get", false, (*exchange).getNetwork},
		{"POST", spritePath + "/policy/network", "policy.network.set", false, (*exchange).setNetwork},
		{"GET", spritePath + "/policy/{kind}", "policy.get", false, (*exchange).getPolicy},
		{"POST", spritePath + "/policy/{kind}", "policy.set", false, (*exchange).setPolicy},
		{"DELETE", spritePath + "/policy/{kind}", "policy.delete", false, (*exchange).deletePolicy},
	}
}

// router puts auth, faults and the log before every handler.
func (s *Server) router() http.Handler {
	mux := http.NewServeMux()
	type pair struct{ plain, socket *route }
	gets := map[string]*pair{}
	for _, rt := range routes() {
		if rt.method != "GET" && rt.method != socketMethod {
			mux.Handle(rt.method+" "+rt.path, s.serve(func(*http.Request) *route { return &rt }))
			continue
		}
		if gets[rt.path] == nil {
			gets[rt.path] = &pair{}
		}
		if rt.method == "GET" {
			gets[rt.path].plain = &rt
		} else {
			gets[rt.path].socket = &rt
		}
	}
	for pattern, both := range gets {
		mux.Handle("GET "+pattern, s.serve(func(r *http.Request) *route {
			if both.socket != nil && (isUpgrade(r) || both.plain == nil) {
				return both.socket
			}
			return both.plain
		}))
	}
	mux.Handle("/_emulator/", http.StripPrefix("/_emulator", s.admin()))
	unknown := s.serve(func(*http.Request) *route {
		return &route{name: "unknown", handle: func(x *exchange) { x.fail(http.StatusNotFound, "not found") }}
	})
	mux.Handle("/", unknown)
	return s.authorised(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !clean(r.URL.Path) { // the mux would redirect, and nobody would have counted the call
			unknown.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
}

// clean tells whether a path stands as it is routed, without empty or dotted segments.
func clean(p string) bool {
	return strings.HasPrefix(p, "/") && path.Clean(p) == strings.TrimSuffix(p, "/") || p == "/"
}

// authorised comes before routing: an unknown path without a token is 401 too.
func (s *Server) authorised(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Sprite-Version", apiVersion)
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.split.Store(false) // of the call before on this connection
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		bearer := strings.EqualFold(scheme, "Bearer") || strings.HasSuffix(r.URL.Path, "/tokens")
		if !bearer || subtle.ConstantTimeCompare([]byte(token), []byte(s.cfg.Token)) != 1 {
			c := &Call{Time: s.cfg.Clock.Now(), Method: r.Method, Route: "unauthorized", Status: http.StatusUnauthorized}
			s.calls.add(c)
			x := &exchange{srv: s, w: w, r: r, call: c}
			x.fail(http.StatusUnauthorized, "authentication failed")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serve handles one call of the API.
func (s *Server) serve(find func(*http.Request) *route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			panic(http.ErrAbortHandler)
		}
		defer s.wg.Done()
		rt := find(r)
		x := &exchange{srv: s, r: r, release: func() {}}
		x.conn, _ = r.Context().Value(connKey{}).(*conn)
		x.call = &Call{
			ID: "req-" + strconv.FormatUint(s.requests.Add(1), 10), Time: s.cfg.Clock.Now(),
			Method: r.Method, Route: x.routeName(rt), Sprite: r.PathValue("name"),
		}
		x.w = &recorder{ResponseWriter: w, x: x}
		if rt.name == "sprite.create" {
			x.call.Sprite = x.peekName()
		}
		s.calls.add(x.call)
		w.Header().Set("X-Request-Id", x.call.ID)
		w.Header().Set("Fly-Request-Id", x.call.ID)
		defer func() { x.release() }()
		x.run(rt)
	})
}

// routeName tells apart what shares a path: attach by query, and the list as a
// watch.
func (x *exchange) routeName(rt *route) string {
	q := x.r.URL.Query()
	switch {
	case rt.name == "exec.ws" && (q.Get("id") != "" || q.Get("session_id") != ""):
		return "exec.attach"
	case rt.name == "sprite.list" && strings.Contains(x.r.Header.Get("Accept"), "ndjson"):
		return "sprite.watch"
	}
	return rt.name
}

// peekName reads the name out of a create's body, for the log and for faults.
func (x *exchange) peekName() string {
	raw, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, maxJSON))
	if err != nil {
		return ""
	}
	x.r.Body = io.NopCloser(bytes.NewReader(raw))
	var b createBody
	_ = json.Unmarshal(raw, &b) // the handler reports it
	return b.Name
}

func (x *exchange) run(rt *route) {
	var missing error
	asleep := false
	if x.r.PathValue("name") != "" {
		if x.sprite, missing = x.srv.sprite(x.call.Sprite); missing == nil {
			asleep = x.sprite.asleep()
		}
	}
	if x.suffer(asleep) {
		return
	}
	if missing != nil {
		x.refuse(missing)
		return
	}
	if rt.method == socketMethod && !isUpgrade(x.r) {
		x.text(http.StatusBadRequest, "WebSocket upgrade required")
		return
	}
	if rt.wakes {
		if err := x.acquire(); err != nil {
			x.refuse(err)
			return
		}
	}
	if rt.method == socketMethod || rt.name == "exec.http" {
		// Before the upgrade: a pause right after it must not leave a socket open.
		defer x.sprite.hold(x.conn, rt.wakes)()
	}
	rt.handle(x)
	if x.does(FaultLost) && !x.conn.upgraded.Load() {
		x.drop()
	}
}

// suffer applies the faults that come before the handler, and says whether the
// call ended there.
func (x *exchange) suffer(asleep bool) bool {
	delay, fault := x.srv.faults.pick(x.call.Route, x.call.Sprite, asleep)
	if delay > 0 && pause(x.r.Context(), x.srv.cfg.Clock, delay) != nil {
		x.drop()
	}
	if fault == nil {
		return false
	}
	x.fault = fault
	x.note(func(c *Call) { c.Fault = fault.Do })
	switch fault.Do {
	case FaultHang:
		<-x.r.Context().Done()
		x.drop()
	case FaultDrop:
		x.drop()
	case FaultDropWake:
		if isUpgrade(x.r) {
			x.sprite.rouse()
			x.drop()
		}
	case FaultStatus:
		x.answerFault()
		return true
	case FaultSplit:
		x.conn.split.Store(true)
	case FaultDelay, FaultDropAfter, FaultNoExit, FaultEmpty, FaultFlood, FaultLost:
		// These work while the call is answered.
	}
	return false
}

func (x *exchange) answerFault() {
	status := x.fault.Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	for k, v := range x.fault.Headers {
		x.w.Header().Set(k, v)
	}
	x.w.WriteHeader(status)
	if status != http.StatusNoContent && status != http.StatusNotModified {
		_, _ = x.w.Write([]byte(x.fault.Body))
	}
}
