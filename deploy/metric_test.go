package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// declared reads from the sources which metrics there are: their names stand beside the code that moves them.
func declared(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("../internal/*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	word := regexp.MustCompile(`"([a-z][a-z0-9_]*)"`)
	subsystem := regexp.MustCompile(`Subsystem:\s*"([a-z]+)"`)
	out := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") || !strings.Contains(string(text), "prometheus.") {
			continue
		}
		prefixes := []string{"", "wakebus_"}
		for _, m := range subsystem.FindAllStringSubmatch(string(text), -1) {
			prefixes = append(prefixes, "wakebus_"+m[1]+"_")
		}
		for _, m := range word.FindAllStringSubmatch(string(text), -1) {
			for _, prefix := range prefixes {
				if name := prefix + m[1]; strings.HasPrefix(name, "wakebus_") {
					out[name] = true
				}
			}
		}
	}
	return out
}

func TestAlertsDashboardAndScalerAskForMetricsThatExist(t *testing.T) {
	t.Parallel()
	names := declared(t)
	asked := regexp.MustCompile(`\bwakebus_[a-z0-9_]+`)
	for _, file := range []string{"monitoring/alerts.yaml", "monitoring/dashboard.json", "k8s/keda.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := asked.FindAllString(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s asks for nothing of ours", file)
		}
		for _, name := range found {
			if base := strings.TrimSuffix(name, "_bucket"); !names[base] {
				t.Errorf("%s asks for %s, which no code declares", file, name)
			}
		}
	}
}

func TestEveryAlertHasItsPlaceInTheRunbookAndATestInWhichItFires(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	book, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile("monitoring/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1)
	if len(alerts) == 0 {
		t.Fatal("no alerts")
	}
	for _, m := range alerts {
		if !strings.Contains(string(book), "\n### "+m[1]+"\n") {
			t.Errorf("docs/operations.md says nothing of %s", m[1])
		}
		if !regexp.MustCompile(`alertname: ` + m[1] + `\n\s+exp_alerts: \[\{`).Match(cases) {
			t.Errorf("no test of monitoring/alerts_test.yaml has %s fire", m[1])
		}
	}
}
