package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is the processor time of this process so far, user and system.
func CPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ProcessCPU is the processor time of another process so far, in steps of 10 ms (proc(5), stat).
func ProcessCPU(pid int) (time.Duration, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("read processor time of process %d: %w", pid, err)
	}
	_, rest, _ := bytes.Cut(data, []byte(") ")) // the name before it may hold anything
	fields := bytes.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("read processor time of process %d: %d fields", pid, len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time of process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// Memory is what a process holds in RAM now and held at most, in bytes (proc(5), status).
func Memory(pid int) (now, peak int64, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(string(fields[1]), 10, 64)
		switch string(fields[0]) {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			peak = kib << 10
		default:
			continue
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read memory of process %d: %w", pid, err)
		}
	}
	return now, peak, nil
}

// ForgetPeak makes the peak of this process's memory begin anew, where the kernel allows it (proc(5), clear_refs).
func ForgetPeak() {
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // else the peak is that of the whole process so far
}
