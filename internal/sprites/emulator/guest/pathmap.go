package guest

import (
	"path"
	"path/filepath"
	"strings"
)

// pathMap turns the paths of a machine into those of the host. In namespace
// isolation it changes nothing.
type pathMap struct {
	root string // the Sprite's folder, "" when nothing is mapped
}

func newPathMap(a bootArgs) pathMap {
	if a.Isolation == Mapped {
		return pathMap{root: a.Folder}
	}
	return pathMap{}
}

func (m pathMap) mapped() bool { return m.root != "" }

// host maps p where it lies in a folder of the machine.
func (m pathMap) host(p string) string {
	if rel, ok := inside(p); ok && m.mapped() {
		return filepath.Join(m.root, rel)
	}
	return p
}

// inside says whether an absolute path lies in a folder that the machine owns,
// and gives it relative to the machine's root.
func inside(p string) (string, bool) {
	if !strings.HasPrefix(p, "/") {
		return "", false
	}
	clean := path.Clean(p)
	for _, base := range []string{Workspace, Home} {
		if clean == base || strings.HasPrefix(clean, base+"/") {
			return strings.TrimPrefix(clean, "/"), true
		}
	}
	return "", false
}

// rewrite maps what a command can be told by data: its folder, whole arguments
// and whole values of its environment. Text inside a script is left alone.
func (m pathMap) rewrite(c *Command) {
	if c.Dir == "" {
		c.Dir = Home
	}
	if len(c.Argv) > 0 && c.Path == "" {
		c.Path = c.Argv[0]
	}
	if !m.mapped() {
		return
	}
	c.Dir, c.Path = m.host(c.Dir), m.host(c.Path)
	for i, a := range c.Argv {
		c.Argv[i] = m.host(a)
	}
	for i, kv := range c.Env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			c.Env[i] = k + "=" + m.host(v)
		}
	}
}
