package sprites_test

import (
	"testing"

	"github.com/wakebus/wakebus/internal/sprites"
)

func TestInsideFollowsEveryLink(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		if _, code := b.run("links", "mkdir in && ln -s in link && ln -s /etc out && ln -s /nowhere/at/all dangling && ln -s /home/sprite/new new"); code != 0 {
			t.Fatal("links not made")
		}
		for name, want := range map[string]bool{
			"in/f": true, "link/f": true, "link": true, "not/there/yet": true, "in": true,
			"out": false, "out/passwd": false, "dangling": false, "new": false, "/etc/passwd": false, "/workspacefake/f": false,
		} {
			if got, err := b.Inside(t.Context(), "box", "/workspace", name); err != nil || got != want {
				t.Errorf("%s: inside %v, %v", name, got, err)
			}
		}
		if _, err := b.Inside(t.Context(), "box", "/workspace", "../etc"); sprites.ClassOf(err) != sprites.ClassInvalid {
			t.Errorf("a path that climbs: %v", err)
		}
	})
}
