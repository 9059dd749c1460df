package telemetry

import (
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Release is the version that this source is on the way to, the newest heading of CHANGELOG.md.
const Release = "0.1.0"

// version is set by releases: -ldflags "-X github.com/wakebus/wakebus/internal/telemetry.version=v1.2.3".
var version string

// Build is what a binary is made of.
type Build struct {
	// Version is the release as it was built, such as v1.2.3; without one the next release's with -dev behind it, so that
	// it is a semantic version in every case.
	Version string `json:"version"`
	// Commit is the source's revision, with "+changes" when it was built from changed files; "" when not known.
	Commit string `json:"commit,omitempty"`
	// Time is when that revision was committed (RFC 3339); "" when not known.
	Time string `json:"time,omitempty"`
	// Go is the tool chain.
	Go string `json:"go"`
}

// ReadBuild returns the running binary's build, from what the Go tool wrote into it.
func ReadBuild() Build {
	b := Build{Version: version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	changed := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if changed && b.Commit != "" {
		b.Commit += "+changes"
	}
	if b.Version == "" {
		b.Version = moduleVersion(info.Main.Version)
	}
	return b
}

// moduleVersion is the version of `go install module@version`. What the Go tool makes up for a source without a tag says
// less than the changelog.
func moduleVersion(module string) string {
	if module == "" || module == "(devel)" || strings.HasPrefix(module, "v0.0.0-") {
		return "v" + Release + "-dev"
	}
	return module
}

// Committed is Time as a time; zero when it is not known.
func (b Build) Committed() time.Time {
	at, err := time.Parse(time.RFC3339, b.Time)
	if err != nil {
		return time.Time{}
	}
	return at
}

// String is the build in one line.
func (b Build) String() string {
	text := b.Version
	if b.Commit != "" {
		text += " (" + b.Commit + ")"
	}
	return text + " " + b.Go
}

// NewRegistry makes a process's metrics registry with the Go runtime's, the process's and the build's own metrics.
func NewRegistry(b Build) *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "wakebus_build_info", Help: "What this binary is made of; always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "go": b.Go},
	})
	info.Set(1)
	r.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
