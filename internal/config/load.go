package config

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// MaxSecretFile is the largest file that an X_FILE variable may name, in bytes.
const MaxSecretFile = 64 << 10

// Load reads every setting through lookup (os.LookupEnv has its shape) and finds misspelt ones among environ
// ("KEY=VALUE", as os.Environ gives them; nil looks for none). It reads the files that X_FILE variables name, and
// nothing else.
//
// The error joins every *Problem of this role at once; see Problems. What is wrong with a setting that the role does
// not read is a Warning. The Config holds all that could be read even when there is an error: one bad setting
// changes no other. Safe for concurrent use if lookup is.
func Load(role Role, lookup func(string) (string, bool), environ []string) (Config, []Warning, error) {
	l := loader{lookup: lookup, values: map[string]string{}, bad: map[string]string{}}
	for _, s := range Settings() {
		l.gather(s)
	}
	var c Config
	for variable, why := range parse(&c, l.values) {
		l.bad[variable] = why
	}
	var problems []*Problem
	var warnings []Warning
	for _, s := range Settings() {
		why, bad := l.bad[s.Variable]
		switch {
		case bad && s.ReadBy(role):
			problems = append(problems, &Problem{Variable: s.Variable, Why: why})
		case bad:
			warnings = append(warnings, Warning{s.Variable, why + "; it is not used here, so its default stands"})
		}
	}
	for _, p := range c.rules(role) {
		if _, told := l.bad[p.Variable]; !told {
			problems = append(problems, p)
		}
	}
	warnings = append(warnings, c.doubts(role)...)
	warnings = append(warnings, unknown(environ)...)
	return c, warnings, joinProblems(problems)
}

// loader collects the raw values of one Load.
type loader struct {
	lookup func(string) (string, bool)
	values map[string]string
	bad    map[string]string
}

func (l *loader) gather(s Setting) {
	value, set := l.lookup(s.Variable)
	path, fromFile := "", false
	if s.Secret {
		path, fromFile = l.lookup(s.FileVariable())
	}
	switch {
	case set && fromFile:
		l.bad[s.Variable] = "is set together with " + s.FileVariable() + "; set one of them"
	case fromFile:
		text, why := readSecret(path)
		if why != "" {
			l.bad[s.Variable] = s.FileVariable() + " " + why
			return
		}
		l.values[s.Variable] = text
	case set && value == "":
		l.bad[s.Variable] = "is set and empty; unset it for the default"
	case set && strings.ContainsRune(value, 0):
		l.bad[s.Variable] = "holds a NUL byte"
	case set:
		l.values[s.Variable] = value
	}
}

// readSecret reads a file without the line end that editors and `kubectl create secret` leave there. Its complaint
// does not hold the path: somebody may have put the secret itself into X_FILE.
func readSecret(path string) (text, why string) {
	if path == "" {
		return "", "is set and empty; unset it"
	}
	f, err := os.Open(path)
	if err != nil {
		return "", "names a file that cannot be read (" + osCause(err) + ")"
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSecretFile+1))
	switch {
	case err != nil:
		return "", "names a file that cannot be read (" + osCause(err) + ")"
	case len(data) > MaxSecretFile:
		return "", fmt.Sprintf("names a file of more than %d bytes", MaxSecretFile)
	}
	text = strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case text == "":
		return "", "names an empty file"
	case strings.ContainsAny(text, "\x00\n"):
		return "", "names a file of more than one line"
	}
	return text, ""
}

func osCause(err error) string {
	switch {
	case os.IsNotExist(err):
		return "it does not exist"
	case os.IsPermission(err):
		return "permission denied"
	}
	return "it is no readable file"
}

// brokerPrefix begins the variables that the shipped configuration of the broker reads: they stand in the same file as an
// operator's own settings.
const brokerPrefix = "WAKEBUS_NATS_"

// unknown finds WAKEBUS_ variables that no setting has, with the nearest name that one has.
func unknown(environ []string) []Warning {
	known := map[string]bool{}
	var names []string
	for _, s := range Settings() {
		names = append(names, s.Variable)
		known[s.Variable] = true
		if s.Secret {
			names = append(names, s.FileVariable())
			known[s.FileVariable()] = true
		}
	}
	for _, own := range clientVariables {
		known[own] = true
	}
	var warnings []Warning
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "WAKEBUS_") || known[name] || strings.HasPrefix(name, brokerPrefix) {
			continue
		}
		why := "is no setting"
		if best := nearest(name, names); best != "" {
			why += "; did you mean " + best + "?"
		}
		warnings = append(warnings, Warning{name, why})
	}
	return warnings
}

// clientVariables are read by single commands and are no settings: the grant that `worker exec` sends, and the
// markers that a sandbox's command finds in its own environment.
var clientVariables = []string{"WAKEBUS_GRANT", "WAKEBUS_JOB_ID", "WAKEBUS_TENANT", "WAKEBUS_RUN"}

// nearest is the name that can be reached from name by the fewest changes, "" if a third of it would change.
func nearest(name string, names []string) string {
	best, least := "", len(name)/3+1
	for _, candidate := range names {
		if d := distance(name, candidate); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance counts the single-byte insertions, deletions and replacements between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
