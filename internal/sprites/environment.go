package sprites

import (
	"maps"
	"slices"
)

// The request's env replaces the platform's default environment (Sprites API reference, exec), so a full base is always
// sent and the caller's values are laid over it.
func (c *Client) environment(caller map[string]string, tty bool, own map[string]string) []string {
	env := map[string]string{
		"PATH": c.cfg.Path, "HOME": guestHome, "USER": "sprite", "LANG": "C.UTF-8",
	}
	extra := map[string]string{
		"CI": "1", "NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat",
		"GIT_TERMINAL_PROMPT": "0", "DEBIAN_FRONTEND": "noninteractive",
	}
	if tty {
		extra = map[string]string{"TERM": "xterm-256color", "COLORTERM": "truecolor"}
	}
	maps.Copy(env, extra)
	maps.Copy(env, caller)
	maps.Copy(env, own)
	lines := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		lines = append(lines, k+"="+env[k])
	}
	return lines
}
