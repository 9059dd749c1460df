package emulator

import (
	"encoding/json"
	"errors"
	"net/http"
)

// admin serves /_emulator/ with the server's own token.
func (s *Server) admin() http.Handler {
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /calls", func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Has("count") {
			reply(w, http.StatusOK, map[string]int{"count": s.Count(q.Get("route"), q.Get("sprite"))})
			return
		}
		reply(w, http.StatusOK, s.Calls())
	})
	mux.HandleFunc("GET /sprites", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, s.Sprites()) })
	mux.HandleFunc("GET /connections", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]int{"sockets": s.Connections()})
	})
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /faults", func(w http.ResponseWriter, r *http.Request) {
		faults, err := ParseFaults(http.MaxBytesReader(w, r.Body, maxFaultFile))
		if err == nil {
			err = s.AddFaults(faults...)
		}
		if err != nil {
			reply(w, http.StatusBadRequest, errorBody{Error: err.Error()})
			return
		}
		reply(w, http.StatusOK, map[string]int{"added": len(faults)})
	})
	actions := map[string]func(string) error{"sleep": s.Sleep, "cold": s.Cold, "kill": s.Kill}
	mux.HandleFunc("POST /sprites/{name}/{action}", func(w http.ResponseWriter, r *http.Request) {
		act, ok := actions[r.PathValue("action")]
		if !ok {
			reply(w, http.StatusNotFound, errorBody{Error: "unknown action"})
			return
		}
		if err := act(r.PathValue("name")); errors.Is(err, ErrNoSprite) {
			reply(w, http.StatusNotFound, errorBody{Error: err.Error()})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}
