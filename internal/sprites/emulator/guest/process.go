package guest

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// others lists every process of the machine but the init, oldest pid first. In
// mapped isolation these are the init's descendants: as their subreaper it
// stays the ancestor of all of them.
func (d *initd) others() []int {
	self := os.Getpid()
	parents := map[int]int{}
	var pids []int
	dir, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range dir {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == self {
			continue
		}
		if ppid, ok := parentOf(pid); ok {
			parents[pid] = ppid
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	if !d.paths.mapped() {
		return pids
	}
	return slices.DeleteFunc(pids, func(pid int) bool { return !descends(pid, self, parents) })
}

func descends(pid, from int, parents map[int]int) bool {
	for hops := 0; hops < len(parents)+1; hops++ {
		parent, ok := parents[pid]
		if !ok {
			return false
		}
		if parent == from {
			return true
		}
		pid = parent
	}
	return false
}

// parentOf reads the field after the command's closing bracket, for the command
// itself may hold spaces and brackets (proc(5), /proc/pid/stat).
func parentOf(pid int) (int, bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	i := bytes.LastIndexByte(raw, ')')
	if i < 0 {
		return 0, false
	}
	f := bytes.Fields(raw[i+1:])
	if len(f) < 2 {
		return 0, false
	}
	ppid, err := strconv.Atoi(string(f[1]))
	return ppid, err == nil
}

// argvMax bounds one process's argument vector, in bytes.
const argvMax = 4 << 10

// argv reads what processes of this machine run now.
func (d *initd) argv(m message) ([][]string, error) {
	var pids []int
	if err := json.Unmarshal(m.Body, &pids); err != nil {
		return nil, err
	}
	mine := d.others()
	out := make([][]string, len(pids))
	for i, pid := range pids {
		if _, ok := slices.BinarySearch(mine, pid); !ok {
			continue
		}
		if raw := readStart("/proc/"+strconv.Itoa(pid)+"/cmdline", argvMax); len(raw) > 0 {
			out[i] = strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
		}
	}
	return out, nil
}

func readStart(name string, limit int64) []byte {
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	raw, _ := io.ReadAll(io.LimitReader(f, limit)) // what was read counts
	return raw
}

// freeze stops everybody, and looks again until nobody new was found: a process
// may have forked while the list was read. Parents first, so that a shell never
// sees its child stop.
func (d *initd) freeze() {
	seen := map[int]bool{}
	for {
		fresh := false
		for _, pid := range d.others() {
			if !seen[pid] && unix.Kill(pid, unix.SIGSTOP) == nil {
				seen[pid], fresh = true, true
			}
		}
		if !fresh {
			return
		}
	}
}

// thaw continues children before their parents, for the same reason.
func (d *initd) thaw() {
	pids := d.others()
	slices.Reverse(pids)
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGCONT)
	}
}

// killAll leaves nobody behind. In a pid namespace the kernel does it when the
// init exits.
func (d *initd) killAll() {
	if !d.paths.mapped() {
		return
	}
	deadline := time.Now().Add(5 * time.Second)
	for time.Now().Before(deadline) {
		pids := d.others()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(time.Millisecond) // the reaper collects them meanwhile
	}
}
