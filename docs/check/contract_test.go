package check_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
)

func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../asyncapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// constants reads the string constants of internal/bus whose names begin with prefix, so that a new one cannot be
// forgotten here.
func constants(t *testing.T, prefix string) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob("../../internal/bus/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.CONST {
				continue
			}
			for _, spec := range gen.Specs {
				value := spec.(*ast.ValueSpec)
				for i, name := range value.Names {
					if !strings.HasPrefix(name.Name, prefix) || i >= len(value.Values) {
						continue
					}
					if lit, ok := value.Values[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
						out[name.Name], _ = strconv.Unquote(lit.Value)
					}
				}
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("no constants begin with %s", prefix)
	}
	return out
}

func all(text, pattern string) []string {
	var out []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestTheDocumentsSubjectsAreTheCodes(t *testing.T) {
	t.Parallel()
	key := bus.RunKey{Tenant: "{tenant}", Job: "{job}"}
	run := func(s string) string { return strings.Replace(s, ".0", ".{run}", 1) }
	want := []string{
		bus.SubjectExec, bus.SubjectTerminal, bus.SubjectExecution, bus.SubjectAuthzAnswer,
		run(key.StateEventSubject()), run(key.OutputEventSubject()), run(key.StateReplySubject()), run(key.OutputReplySubject()),
		run(key.RetryAtSubject()), bus.SubjectRetryDue + ".{kind}.{tenant}", bus.DLQSubject("{tenant}", "{job}"),
		bus.CancelJobSubject("{tenant}", "{job}"), bus.CancelConversationSubject("{tenant}", "{conversation}"),
		bus.SubjectAudit + ".{tenant}.{auditKind}.{id}",
	}
	for _, kind := range bus.Kinds() {
		want = append(want, bus.RequestSubject(kind, "{tenant}"))
	}
	for _, endpoint := range []string{bus.SubjectCallExec, bus.SubjectFileRead, bus.SubjectFileWrite, bus.SubjectHistory, bus.SubjectJobs} {
		want = append(want, endpoint+".{tenant}")
	}
	slices.Sort(want)
	if got := all(document(t), `(?m)^    address: '(.*)'$`); !slices.Equal(got, want) {
		t.Errorf("the document has\n%s\nthe code\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for name, subject := range constants(t, "Subject") {
		if !slices.ContainsFunc(want, func(s string) bool { return s == subject || strings.HasPrefix(s, subject+".") }) {
			t.Errorf("%s (%s) is in no address", name, subject)
		}
	}
}

func TestTheDocumentsStreamsAreTheCodes(t *testing.T) {
	t.Parallel()
	got := all(document(t), `(?m)^    x-nats-stream: (\S+)$`)
	var want []string
	for _, stream := range constants(t, "Stream") {
		want = append(want, stream)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the document has %v, the code %v", got, want)
	}
}

func TestTheDocumentsHeadersAreTheCodes(t *testing.T) {
	t.Parallel()
	got := all(document(t), `(?m)^        ([A-Za-z]+(?:-[A-Za-z]+)+|traceparent|tracestate):$`)
	want := []string{"Nats-Service-Error", "Nats-Service-Error-Code"} // the service protocol's own
	for _, header := range constants(t, "Header") {
		want = append(want, header)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the document has\n%v\nthe code\n%v", got, want)
	}
}

func TestEveryEventOfTheCodeIsAMessage(t *testing.T) {
	t.Parallel()
	text := document(t)
	for name, event := range constants(t, "Event") {
		message := strings.Replace(event, "taken_over", "takenOver", 1)
		if !strings.Contains(text, "\n    "+message+":\n      title:") {
			t.Errorf("%s (%s) is no message", name, event)
		}
	}
}

// What a document says of the code's tests is checked like a link: each test that it names is there.
func TestTheDocumentsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			there[m[1]] = true
		}
		return nil
	})
	if err != nil || len(there) == 0 {
		t.Fatalf("%d tests, %v", len(there), err)
	}
	pages, err := filepath.Glob("../*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range all(string(text), "`((?:Test|Fuzz)[A-Z0-9]\\w+)`") {
			if !there[name] && name != "FuzzXxx" {
				t.Errorf("%s names %s, which is not there", page, name)
			}
		}
	}
	security, err := os.ReadFile("../security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(security), "| somebody |")
	for _, row := range regexp.MustCompile(`(?m)^\| [^-s].*\|$`).FindAllString(table, -1) {
		if !strings.Contains(row, "`Test") {
			t.Errorf("no test is named for: %s", row)
		}
	}
}
