package main

import (
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// What no document says is asked and printed, as the service does it.
func TestTheLiveCheckSaysWhatTheServiceDoes(t *testing.T) {
	t.Parallel()
	always := []string{"live: sandbox made, locked down and writable", "live: a command ran", "live: a session's id is its pid inside", "live: /workspace belongs to"}
	for name, tt := range map[string]struct {
		change func(*emulator.Config)
		says   []string
	}{
		"exact":  {func(c *emulator.Config) { c.Offset = true }, []string{"an attach honours output_offset", "an attach replays all of"}},
		"merged": {func(c *emulator.Config) { c.Attach = emulator.AttachMerged }, []string{"an attach does not honour output_offset", "an attach replays 65536 of"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := emulator.Config{WarmWake: -1, ColdWake: -1}
			tt.change(&cfg)
			emu, err := emulator.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := emu.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = emu.Close() })
			r := newRig(t)
			r.env["SPRITES_API_URL"], r.env["SPRITES_API_TOKEN"] = emu.URL(), emu.Token()
			got := r.run("check", "--live")
			for _, want := range append(tt.says, always...) {
				if !strings.Contains(got.out, want) {
					t.Errorf("%q is not said:\n%s", want, got)
				}
			}
			if left := emu.Sprites(); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
