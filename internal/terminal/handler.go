package terminal

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// howToBuild is what the gateway answers in place of a page that was not built.
const howToBuild = `The terminal's page is not built.

Build it once with:

    npm --prefix internal/terminal/page ci && npm --prefix internal/terminal/page run build

and start the gateway with --page-dir internal/terminal/page/dist (the default when it runs in the repository).
"terminal-gw attach" needs no page.
`

// Handler serves the edge: GET /v1/terminal, /healthz, and the page below /. It may be used by several servers.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/terminal", g.serveTerminal)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		g.mu.Lock()
		draining := g.draining
		g.mu.Unlock()
		if draining {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.Handle("GET /", g.pageHandler())
	return secure(mux)
}

// pageHandler serves the built page, and nothing outside its folder.
func (g *Gateway) pageHandler() http.Handler {
	dir := g.cfg.PageDir
	built := false
	if dir != "" {
		_, err := os.Stat(filepath.Join(dir, "index.html"))
		built = err == nil
	}
	if !built {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, howToBuild)
		})
	}
	files := http.FileServerFS(os.DirFS(dir))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") && r.URL.Path != "/" {
			http.NotFound(w, r) // no listings
			return
		}
		w.Header().Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	})
}

// secure sets the headers that every answer carries. xterm.js sizes its cells by style elements of its own, hence the
// one exception for styles; scripts come from us alone.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "+
			"font-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), clipboard-write=(self), clipboard-read=(self)")
		next.ServeHTTP(w, r)
	})
}
