package guest

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ports lists the listening TCP sockets of the machine. In mapped isolation the
// host's own are left out: only sockets that a process of the machine holds.
func (d *initd) ports() ([]Port, error) {
	owners := socketOwners(d.others())
	ports := []Port{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(file)
		if err != nil {
			continue // a host without IPv6 has no tcp6
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			p, inode, ok := parseListener(s.Text())
			if !ok {
				continue
			}
			pid, held := owners[inode]
			if held {
				p.PID = pid
				ports = append(ports, p)
			}
		}
		_ = f.Close()
	}
	slices.SortFunc(ports, func(a, b Port) int { return a.Port - b.Port })
	return slices.CompactFunc(ports, func(a, b Port) bool { return a.Port == b.Port }), nil
}

const (
	stateListen = "0A"
	fieldLocal  = 1
	fieldState  = 3
	fieldInode  = 9
)

// parseListener reads one line of /proc/net/tcp (proc(5)): the address is hex in
// host byte order, in words of four bytes.
func parseListener(line string) (Port, string, bool) {
	f := strings.Fields(line)
	if len(f) <= fieldInode || f[fieldState] != stateListen {
		return Port{}, "", false
	}
	host, port, ok := strings.Cut(f[fieldLocal], ":")
	if !ok {
		return Port{}, "", false
	}
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw)%4 != 0 {
		return Port{}, "", false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	n, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return Port{}, "", false
	}
	return Port{Port: int(n), Address: addr.Unmap().String()}, f[fieldInode], true
}

func socketOwners(pids []int) map[string]int {
	owners := map[string]int{}
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			target, err := os.Readlink(dir + "/" + fd.Name())
			if err != nil {
				continue
			}
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				owners[strings.TrimSuffix(inode, "]")] = pid
			}
		}
	}
	return owners
}
