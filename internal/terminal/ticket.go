package terminal

import (
	"net/http"
	"strings"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// maxTicket bounds a ticket in bytes.
const maxTicket = 8 << 10

// subprotocols lists what the client offers.
func subprotocols(r *http.Request) []string {
	var out []string
	for _, h := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(h, ",") {
			if p = strings.TrimSpace(p); p != "" {
				out = append(out, p)
			}
		}
	}
	return out
}

// ticketOf takes the ticket from the offered subprotocols: it never stands in a URL, which gets logged. Two tickets are
// none.
func ticketOf(r *http.Request) string {
	ticket := ""
	for _, p := range subprotocols(r) {
		t, ok := strings.CutPrefix(p, frame.TicketPrefix)
		if !ok {
			continue
		}
		if ticket != "" || t == "" || len(t) > maxTicket {
			return ""
		}
		ticket = t
	}
	return ticket
}
