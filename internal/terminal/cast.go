package terminal

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// recording writes one shell's output as asciicast v2 (https://docs.asciinema.org/manual/asciicast/v2/). A nil one
// records nothing. A gateway that takes a shell over goes on with the same file where the folder is shared.
type recording struct {
	now func() time.Time
	log zerolog.Logger

	mu      sync.Mutex // protects all below
	file    *os.File
	begun   time.Time
	left    int64  // bytes that may still be written
	partial []byte // the beginning of a character whose end has not come
	known   []byte // the newest output in a file that is continued
}

// castName is the same for a shell on every gateway.
func castName(page Page, shell Shell) string {
	sum := sha256.Sum256([]byte(page.Tenant + "\x00" + page.Drive + "\x00" + page.ID + "\x00" + shell.ID + "\x00" + strconv.FormatInt(shell.Created, 10)))
	return page.Tenant + "-" + hex.EncodeToString(sum[:10]) + ".cast"
}

// record begins or continues a shell's recording. A recording that cannot be written costs nobody a terminal.
func (g *Gateway) record(page Page, shell Shell, size frame.Size) *recording {
	if g.cfg.Recordings == "" {
		return nil
	}
	r := &recording{now: g.cfg.Now, log: g.log, begun: g.cfg.Now(), left: g.cfg.RecordingBytes}
	if err := r.start(filepath.Join(g.cfg.Recordings, castName(page, shell)), size); err != nil {
		g.log.Error().Err(err).Msg("terminal is not recorded")
		return nil
	}
	return r
}

// start opens the file; an existing one is continued.
func (r *recording) start(path string, size frame.Size) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open recording: %w", err)
	}
	r.file = f
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("open recording: %w", err)
	}
	if r.left -= info.Size(); info.Size() > 0 {
		return r.reopen(info.Size())
	}
	if !size.Valid() {
		size = frame.Size{Cols: 80, Rows: 24}
	}
	return r.line(map[string]any{"version": 2, "width": size.Cols, "height": size.Rows, "timestamp": r.begun.Unix()})
}

// reopen reads what a continued file holds: its clock from the head, its newest output from the end. A line that was
// cut short by its writer's death is ended, so that the file stays readable.
func (r *recording) reopen(size int64) error {
	head, err := bufio.NewReader(r.file).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read recording's head: %w", err)
	}
	var h struct {
		Timestamp int64 `json:"timestamp"`
	}
	if err := json.Unmarshal(head, &h); err != nil {
		return fmt.Errorf("read recording's head: %w", err)
	}
	r.begun = time.Unix(h.Timestamp, 0)
	from := max(int64(len(head)), size-16*knownTail)
	tail := make([]byte, size-from)
	if _, err := r.file.ReadAt(tail, from); err != nil {
		return fmt.Errorf("read recording's tail: %w", err)
	}
	whole := tail[:bytes.LastIndexByte(tail, '\n')+1]
	if cut := int64(len(tail) - len(whole)); cut > 0 {
		if err := r.file.Truncate(size - cut); err != nil {
			return fmt.Errorf("mend recording: %w", err)
		}
	}
	for l := range bytes.SplitSeq(whole, []byte("\n")) {
		var event []any
		if json.Unmarshal(l, &event) != nil || len(event) != 3 || event[1] != "o" {
			continue
		}
		if text, ok := event[2].(string); ok {
			r.known = append(r.known, text...)
		}
	}
	r.known = r.known[max(0, len(r.known)-knownTail):]
	return nil
}

// resume takes the history of a shell that was met, and writes only what the file does not have; where that cannot be
// proven it says so by a marker.
func (r *recording) resume(history []byte) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipLocked(history)
}

// output writes live output.
func (r *recording) output(p []byte) {
	if r == nil || len(p) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.textLocked(p)
}

// skipLocked writes the part of history that follows what is known.
func (r *recording) skipLocked(history []byte) {
	known := r.known
	r.known = nil
	if len(known) > 0 {
		next, ok := align(known, false, history)
		if ok {
			history = history[next:]
		} else {
			r.eventLocked("m", "gap: what was printed in between is unknown")
			r.eventLocked("o", "\x1bc")
		}
	}
	r.textLocked(history)
}

// textLocked writes an output event. Events hold whole characters: one that is cut waits for its end; bytes that are no
// text become the replacement character, for JSON knows no others.
func (r *recording) textLocked(p []byte) {
	p = append(r.partial, p...)
	cut := len(p)
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if c := p[len(p)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-i:]) {
				cut = len(p) - i
			}
			break
		}
	}
	r.partial = append([]byte(nil), p[cut:]...)
	if cut > 0 {
		r.eventLocked("o", string(p[:cut]))
	}
}

// resize writes the terminal's new size.
func (r *recording) resize(size frame.Size) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.eventLocked("r", fmt.Sprintf("%dx%d", size.Cols, size.Rows))
}

// gap marks a place where an unknown number of bytes is missing; a player's screen is cleared, as a viewer's is.
func (r *recording) gap() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.eventLocked("m", "gap: what was printed in between is unknown")
	r.eventLocked("o", "\x1bc")
}

func (r *recording) eventLocked(kind, text string) {
	if r.file == nil {
		return
	}
	at := json.Number(strconv.FormatFloat(r.now().Sub(r.begun).Seconds(), 'f', 6, 64))
	if err := r.line([]any{at, kind, text}); err != nil {
		r.log.Error().Err(err).Msg("recording stopped")
		r.file.Close()
		r.file = nil
	}
}

// line writes one line in one write; at the bound the recording ends with a marker.
func (r *recording) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode recording: %w", err)
	}
	if r.left -= int64(len(b)) + 1; r.left < 0 {
		full := fmt.Sprintf("[%.6f,\"m\",\"recording is full\"]\n", r.now().Sub(r.begun).Seconds())
		_, _ = r.file.WriteString(full) // it ends here either way
		return errFull
	}
	if _, err := r.file.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	return nil
}

func (r *recording) close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return
	}
	if len(r.partial) > 0 {
		r.eventLocked("o", string(r.partial))
	}
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}
