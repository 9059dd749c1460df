package telemetry

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/wakebus/wakebus/internal/config"
)

// LogConfig says where and how a process logs.
type LogConfig struct {
	// Output takes the lines; each is one Write. Defaults to os.Stderr.
	Output io.Writer
	// Level is the least level that is logged at first. Defaults to info.
	Level config.Level
	// Format is JSON, or pretty for people. Defaults to pretty when Output is a terminal, else JSON.
	Format LogFormat
	// Service and Version stand in every line when set. Defaults to neither.
	Service, Version string
	// Now gives the lines their time. Defaults to time.Now.
	Now func() time.Time
}

// LogFormat is how a log line is written.
type LogFormat string

// The closed set of formats; the empty one means: look at the output.
const (
	LogAuto   LogFormat = ""
	LogJSON   LogFormat = "json"
	LogPretty LogFormat = "pretty"
)

// Log is a logger whose level can be changed while it runs. Safe for concurrent use.
type Log struct {
	// Logger is the logger to hand on; its children follow the level.
	zerolog.Logger
	level *levelGate
}

// NewLog makes the process's log.
func NewLog(cfg LogConfig) *Log {
	if cfg.Output == nil {
		cfg.Output = os.Stderr
	}
	if cfg.Level == "" {
		cfg.Level = config.LevelInfo
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Format == LogPretty || cfg.Format == LogAuto && isTerminal(cfg.Output) {
		cfg.Output = zerolog.ConsoleWriter{Out: cfg.Output, TimeFormat: "15:04:05.000"}
	}
	gate := &levelGate{}
	fields := zerolog.New(cfg.Output).With()
	if cfg.Service != "" {
		fields = fields.Str(KeyService, cfg.Service)
	}
	if cfg.Version != "" {
		fields = fields.Str(KeyVersion, cfg.Version)
	}
	log := &Log{Logger: fields.Logger().Sample(gate).Hook(stamp{cfg.Now}), level: gate}
	log.SetLevel(cfg.Level)
	return log
}

// Level returns the least level that is logged now.
func (l *Log) Level() config.Level {
	now := zerolog.Level(l.level.least.Load())
	for name, level := range zerologLevels {
		if level == now {
			return name
		}
	}
	return config.LevelOff
}

// SetLevel changes the least level that is logged, for every logger made from this one. An unknown level is info.
func (l *Log) SetLevel(level config.Level) {
	z, ok := zerologLevels[level]
	if !ok {
		z = zerolog.InfoLevel
	}
	l.level.least.Store(int32(z))
}

// Flood returns a logger for lines that a stranger can cause: at most burst of them in each period. It follows the level of
// the logger that it was made from, and hidden lines spend no burst. It counts for itself: make one per cause and keep it.
// It may be used concurrently.
func Flood(log zerolog.Logger, burst uint32, period time.Duration) zerolog.Logger {
	return log.Hook(flood{&zerolog.BurstSampler{Burst: burst, Period: period}})
}

// flood drops lines after the logger's own sampler, the level, has let them through.
type flood struct{ sampler zerolog.Sampler }

func (f flood) Run(e *zerolog.Event, level zerolog.Level, _ string) {
	if !f.sampler.Sample(level) {
		e.Discard()
	}
}

var zerologLevels = map[config.Level]zerolog.Level{
	config.LevelTrace: zerolog.TraceLevel, config.LevelDebug: zerolog.DebugLevel, config.LevelInfo: zerolog.InfoLevel,
	config.LevelWarn: zerolog.WarnLevel, config.LevelError: zerolog.ErrorLevel, config.LevelOff: zerolog.Disabled,
}

// levelGate is the changeable level. It is a sampler because that is asked before an event is built: a line below
// the level costs one atomic load.
type levelGate struct{ least atomic.Int32 }

func (g *levelGate) Sample(level zerolog.Level) bool { return int32(level) >= g.least.Load() }

// stamp writes the time itself: the library's own is a global setting of whole seconds.
type stamp struct{ now func() time.Time }

func (s stamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(KeyTime, s.now().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
