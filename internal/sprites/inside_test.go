package sprites_test

import (
	"testing"

	"github.com/wakebus/wakebus/internal/sprites"
)

func TestInsideFollowsEveryLink(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		if _, code := b.run("links", "mkdir in && ln -s in link && ln -s /etc out && ln -s /nowhere/at/all dangling && ln -s /home/sprite/new new && mkfifo pipe && ln -s pipe topipe && ln -s in moved"); code != 0 {
			t.Fatal("links not made")
		}
		for name, want := range map[string]sprites.Place{
			"in/f": sprites.PlaceInside, "link/f": sprites.PlaceInside, "link": sprites.PlaceFolder, "not/there/yet": sprites.PlaceInside, "in": sprites.PlaceFolder,
			"out": sprites.PlaceOutside, "out/passwd": sprites.PlaceOutside, "dangling": sprites.PlaceOutside, "new": sprites.PlaceOutside,
			"/etc/passwd": sprites.PlaceOutside, "/workspacefake/f": sprites.PlaceOutside,
			"pipe": sprites.PlaceSpecial, "topipe": sprites.PlaceSpecial,
		} {
			if got, err := b.Inside(t.Context(), "box", "/workspace", name); err != nil || got != want {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		if got, err := b.Inside(t.Context(), "box", "/workspace/moved", "f"); err != nil || got != sprites.PlaceOutside {
			t.Errorf("a folder that is a link: %q, %v", got, err)
		}
		if _, err := b.Inside(t.Context(), "box", "/workspace", "../etc"); sprites.ClassOf(err) != sprites.ClassInvalid {
			t.Errorf("a path that climbs: %v", err)
		}
	})
}
