package sprites

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
)

//go:embed inside.sh
var insideScript string

// Place is where a path leads once every symbolic link on its way is followed.
type Place string

// The places.
const (
	PlaceOutside Place = "outside"
	PlaceInside  Place = "inside" // a file, or nothing yet
	PlaceFolder  Place = "folder" // a folder inside
	// PlaceSpecial is a pipe, a device or a socket inside: reading one may never end.
	PlaceSpecial Place = "special"
)

// Inside reports whether a path stays in a folder of the Sprite once every symbolic link on its way is followed. Both
// are absolute; a folder that is itself a link holds nothing. It runs a command, so it wakes the Sprite. The guest is root and may change a link right after: this
// keeps honest tools within bounds, and the Sprite's own walls hold the rest. It blocks for a few CallTimeouts at most.
func (c *Client) Inside(ctx context.Context, sprite, folder, name string) (Place, error) {
	file, err := guestPath(name)
	if err == nil {
		err = checkName(OpFiles, sprite)
	}
	if err != nil {
		return "", fmt.Errorf("resolve path: %w", err)
	}
	marker := c.cfg.Nonce()
	out, err := c.run(ctx, probe{sprite: sprite, limit: c.cfg.CallTimeout, argv: []string{"sh", "-c", insideScript, "wakebus", marker, folder, file}})
	if err != nil {
		return "", fmt.Errorf("resolve path in %s: %w", sprite, err)
	}
	lines := marked(out, marker)
	for _, place := range []Place{PlaceOutside, PlaceInside, PlaceFolder, PlaceSpecial} {
		if slices.Contains(lines, string(place)) {
			return place, nil
		}
	}
	return "", fmt.Errorf("resolve path in %s: %w", sprite, &Error{Op: OpProbe, Class: ClassUnavailable, Opened: true, cause: ErrMalformed})
}
