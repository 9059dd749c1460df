package check_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const root = "../.."

func project(t *testing.T) *types.Project {
	t.Helper()
	// The file of the broker's passwords is made by deploy/init.sh; loading needs one that is there.
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(root, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "deploy/secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"compose.yaml": text, "deploy/secrets/nats.env": []byte("A=b\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	options, err := cli.NewProjectOptions([]string{filepath.Join(dir, "compose.yaml")}, cli.WithWorkingDirectory(dir))
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestComposeLoadsAndEveryServiceIsWatched(t *testing.T) {
	t.Parallel()
	p := project(t)
	names := p.ServiceNames()
	slices.Sort(names)
	if want := []string{"emulator", "nats", "redis", "setup", "terminal-gw", "worker"}; !slices.Equal(names, want) {
		t.Fatalf("services are %v", names)
	}
	for name, s := range p.Services {
		if name != "setup" && (s.HealthCheck == nil || len(s.HealthCheck.Test) == 0) {
			t.Errorf("%s has no health check", name)
		}
		for dependency := range s.DependsOn {
			if _, ok := p.Services[dependency]; !ok {
				t.Errorf("%s depends on %s, which is not there", name, dependency)
			}
		}
		for _, secret := range s.Secrets {
			if _, ok := p.Secrets[secret.Source]; !ok {
				t.Errorf("%s wants the secret %s, which is not there", name, secret.Source)
			}
		}
	}
}

func TestComposeKeepsWhatMustNotBeLostInNamedVolumes(t *testing.T) {
	t.Parallel()
	p := project(t)
	for service, target := range map[string]string{"nats": "/data", "redis": "/data", "emulator": "/data"} {
		if !slices.ContainsFunc(p.Services[service].Volumes, func(v types.ServiceVolumeConfig) bool {
			_, named := p.Volumes[v.Source]
			return v.Target == target && v.Type == types.VolumeTypeVolume && named
		}) {
			t.Errorf("%s has no named volume at %s", service, target)
		}
	}
	command := p.Services["redis"].Command
	for _, pair := range [][2]string{{"--maxmemory-policy", "noeviction"}, {"--appendonly", "yes"}} {
		if i := slices.Index(command, pair[0]); i < 0 || i+1 >= len(command) || command[i+1] != pair[1] {
			t.Errorf("redis runs without %s %s", pair[0], pair[1])
		}
	}
}

func TestComposeGivesPartsTimeToDrainAndNoRightsToSpare(t *testing.T) {
	t.Parallel()
	p := project(t)
	for _, name := range []string{"worker", "terminal-gw"} {
		s := p.Services[name]
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) <= 30*time.Second {
			t.Errorf("%s is killed within the default drain of 30 s", name)
		}
		if !s.ReadOnly || !slices.Contains(s.CapDrop, "ALL") || s.Privileged {
			t.Errorf("%s has rights that it does not need", name)
		}
	}
	for name, s := range p.Services {
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q", name, port.Published, port.HostIP)
			}
		}
	}
}
