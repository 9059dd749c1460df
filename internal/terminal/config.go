package terminal

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Config holds the gateway's settings. The zero value works.
type Config struct {
	// Name is this gateway's name in records; it must be new at each start. Defaults to a random one.
	Name string
	// Origins are the exact origins that may connect, such as https://app.example. Defaults to none: then only a client
	// that sends no Origin, and so is no browser, may connect with a ticket.
	Origins []string

	// Open lets clients connect that send neither an Origin nor a ticket; it is for a gateway on loopback whose gatekeeper
	// believes everybody. Defaults to false.
	Open bool

	// RingBytes is how much output each shell keeps. Defaults to 256 KiB; at least 4 KiB.
	RingBytes int
	// ChunkBytes is the largest output frame. Defaults to 32 KiB.
	ChunkBytes int
	// WindowBytes is how far output runs ahead of what a flow-controlled viewer has shown. Defaults to 128 KiB.
	WindowBytes int
	// QueueBytes bounds the input that waits for a shell. Defaults to 64 KiB.
	QueueBytes int
	// OutputRate is how many bytes a second are read from one shell, so that a flood leaves room for others; the shell
	// is slowed down to it. Defaults to 4 MiB.
	OutputRate int
	// Coalesce is how long output may wait for more, except after a key. Defaults to 16ms.
	Coalesce time.Duration
	// PaceHold is how long a shell waits for a viewer that is behind before it runs on without it. Defaults to 250ms.
	PaceHold time.Duration

	// SettleQuiet and SettleMax bound how long an attachment's replay is collected: until it is quiet for the first, at
	// most for the second. Defaults to 40ms and 500ms.
	SettleQuiet, SettleMax time.Duration
	// ReattachTries is how often a dropped attachment is dialled again before the terminal rests until a key. Defaults to 8.
	ReattachTries int
	// ReattachDelay is the first pause between tries; it doubles up to 5 s. Defaults to 250ms.
	ReattachDelay time.Duration

	// OpenPatience is how long an open may take in all. Defaults to 2m.
	OpenPatience time.Duration
	// LookPatience is how long an open that was refused a slot looks for a shell that another gateway is opening for the
	// same page. Defaults to 5s.
	LookPatience time.Duration
	// CallTimeout bounds each call to a neighbour but the open. Defaults to 15s.
	CallTimeout time.Duration
	// DetachWindow is how long a shell without viewers keeps its slot and its attachment, and how long it then outlives
	// the attachment. Defaults to 30m.
	DetachWindow time.Duration
	// IdleAfter is how long nothing is typed or printed before the attachment is dropped and the sandbox may sleep.
	// Defaults to 15m.
	IdleAfter time.Duration
	// FinalKeep is how long an ended shell's last output waits for its viewer. Defaults to 10m.
	FinalKeep time.Duration

	// RecheckEvery is the interval of re-authorisation. Defaults to 60s.
	RecheckEvery time.Duration
	// RecheckGrace is how long a person stays whose check cannot be made. Defaults to 15m.
	RecheckGrace time.Duration
	// AdoptEvery is how often a guest looks whether the holder is gone. Defaults to 5s.
	AdoptEvery time.Duration
	// PingEvery is the interval of pings to viewers; a pong must come within half of it. Defaults to 20s.
	PingEvery time.Duration
	// WriteTimeout is how long one frame to a viewer may take; a slower one is closed with 4408. Defaults to 15s.
	WriteTimeout time.Duration
	// HelloTimeout is how long a new socket may stay silent. Defaults to 10s.
	HelloTimeout time.Duration
	// DrainWindow is the time over which viewers are sent away at shutdown. Defaults to 5s.
	DrainWindow time.Duration

	// MaxSockets, MaxPerUser and MaxViewers bound the sockets in all, of one person, and of one shell. Default to 5000,
	// 16 and 16.
	MaxSockets, MaxPerUser, MaxViewers int
	// MaxClients bounds how many clients' input counts a shell remembers. Defaults to 64.
	MaxClients int

	// Recordings is the folder for asciicast files. Defaults to none: nothing is recorded.
	Recordings string
	// RecordingBytes bounds one recording. Defaults to 64 MiB.
	RecordingBytes int64
	// PageDir holds the built page. Defaults to none: then the gateway says how to build it.
	PageDir string

	// Now tells the time. Defaults to time.Now.
	Now func() time.Time
	// Tick gives a channel that ticks about every d, and a function that ends it. Defaults to a time.Ticker.
	Tick func(d time.Duration) (<-chan time.Time, func())
	// TickEvery is how often the gateway looks after its sessions. Defaults to 1s.
	TickEvery time.Duration
	// Jitter gives a number in [0,1). Defaults to math/rand.
	Jitter func() float64
	// ID gives a new random token. Defaults to 16 random bytes in hex.
	ID func() string
	// Logger takes the gateway's log. Defaults to none.
	Logger *zerolog.Logger
	// Registerer takes the gateway's metrics. Defaults to none.
	Registerer prometheus.Registerer
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c *Config) setDefaults() {
	def(&c.RingBytes, 256<<10)
	def(&c.ChunkBytes, 32<<10)
	def(&c.WindowBytes, 128<<10)
	def(&c.QueueBytes, 64<<10)
	def(&c.OutputRate, 4<<20)
	def(&c.Coalesce, 16*time.Millisecond)
	def(&c.PaceHold, 250*time.Millisecond)
	def(&c.SettleQuiet, 40*time.Millisecond)
	def(&c.SettleMax, 500*time.Millisecond)
	def(&c.ReattachTries, 8)
	def(&c.ReattachDelay, 250*time.Millisecond)
	def(&c.OpenPatience, 2*time.Minute)
	def(&c.LookPatience, 5*time.Second)
	def(&c.CallTimeout, 15*time.Second)
	def(&c.DetachWindow, 30*time.Minute)
	def(&c.IdleAfter, 15*time.Minute)
	def(&c.FinalKeep, 10*time.Minute)
	def(&c.RecheckEvery, time.Minute)
	def(&c.RecheckGrace, 15*time.Minute)
	def(&c.AdoptEvery, 5*time.Second)
	def(&c.PingEvery, 20*time.Second)
	def(&c.WriteTimeout, 15*time.Second)
	def(&c.HelloTimeout, 10*time.Second)
	def(&c.DrainWindow, 5*time.Second)
	def(&c.MaxSockets, 5000)
	def(&c.MaxPerUser, 16)
	def(&c.MaxViewers, 16)
	def(&c.MaxClients, 64)
	def(&c.RecordingBytes, 64<<20)
	def(&c.TickEvery, time.Second)
	c.setSources()
}

// setSources fills in the real clock, chance and outlets.
func (c *Config) setSources() {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Tick == nil {
		c.Tick = func(d time.Duration) (<-chan time.Time, func()) { t := time.NewTicker(d); return t.C, t.Stop }
	}
	if c.Jitter == nil {
		c.Jitter = mrand.Float64
	}
	if c.ID == nil {
		c.ID = randomID
	}
	if c.Name == "" {
		c.Name = "gw-" + c.ID()
	}
	if c.Logger == nil {
		nop := zerolog.Nop()
		c.Logger = &nop
	}
}

func randomID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}

// validate reports every problem at once.
func (c *Config) validate() error {
	var errs []error
	positive := func(name string, v int64) {
		if v <= 0 {
			errs = append(errs, fmt.Errorf("%s must be above zero", name))
		}
	}
	for name, d := range map[string]time.Duration{"coalesce": c.Coalesce, "pace hold": c.PaceHold, "settle quiet": c.SettleQuiet,
		"settle max": c.SettleMax, "reattach delay": c.ReattachDelay, "open patience": c.OpenPatience, "look patience": c.LookPatience,
		"call timeout": c.CallTimeout, "detach window": c.DetachWindow, "idle after": c.IdleAfter, "final keep": c.FinalKeep,
		"recheck every": c.RecheckEvery, "recheck grace": c.RecheckGrace, "adopt every": c.AdoptEvery, "ping every": c.PingEvery,
		"write timeout": c.WriteTimeout, "hello timeout": c.HelloTimeout, "drain window": c.DrainWindow, "tick every": c.TickEvery} {
		positive(name, int64(d))
	}
	for name, n := range map[string]int{"chunk bytes": c.ChunkBytes, "window bytes": c.WindowBytes, "output rate": c.OutputRate,
		"reattach tries": c.ReattachTries, "max sockets": c.MaxSockets, "max per user": c.MaxPerUser, "max viewers": c.MaxViewers,
		"max clients": c.MaxClients} {
		positive(name, int64(n))
	}
	if c.RingBytes < 4<<10 {
		errs = append(errs, errors.New("ring bytes must be at least 4096"))
	}
	if c.QueueBytes < 4<<10 {
		errs = append(errs, errors.New("queue bytes must be at least 4096: one input frame"))
	}
	for _, o := range c.Origins {
		if err := checkOrigin(o); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
