package bench

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
)

// Report is what a measurement found. Its JSON is what `worker bench --json` prints.
type Report struct {
	// The latencies of paced jobs, from just before the publish to the event's arrival at the caller.
	EnqueueStarted Distribution `json:"enqueue_started_ms"`
	EnqueueResult  Distribution `json:"enqueue_result_ms"`
	// ExecDirect is the same command straight through the Sprites client; Added is what a job took longer, pair by pair.
	ExecDirect Distribution `json:"exec_direct_ms"`
	Added      Distribution `json:"added_ms"`
	// OutputDelay is from a command's printing to its caller's hearing; AddedOutput what that is more than straight through
	// the Sprites client, pair by pair. Both are empty where the sandbox's clock is not this machine's.
	OutputDelay Distribution `json:"output_delay_ms"`
	AddedOutput Distribution `json:"added_output_ms"`
	// Lease is one lease of three scopes, taken and given back.
	Lease Distribution `json:"lease_ms"`
	// LoadResult is from publish to result while the target is kept busy: queueing, mostly.
	LoadResult Distribution `json:"load_result_ms"`

	JobsPerSecond     float64 `json:"jobs_per_s"`
	OutputMBPerSecond float64 `json:"output_mb_per_s"`
	// BytesPerJob is what the streams keep of a job; MessagesPerJob how many messages they stored for it.
	BytesPerJob    float64 `json:"bytes_per_job"`
	MessagesPerJob float64 `json:"messages_per_job"`
	// NATSOpsPerJob is messages into and out of the broker, the caller's included; 0 when the broker is not ours.
	NATSOpsPerJob      float64 `json:"nats_ops_per_job"`
	RedisCallsPerJob   float64 `json:"redis_calls_per_job"`
	SpritesCallsPerJob float64 `json:"sprites_calls_per_job"`
	// CPUMsPerJob and PeakRSSMiB are this process's: worker, broker, emulator and caller together where all are in it.
	CPUMsPerJob      float64 `json:"cpu_ms_per_job"`
	RedisCPUMsPerJob float64 `json:"redis_cpu_ms_per_job"`
	PeakRSSMiB       float64 `json:"peak_rss_mib"`

	// What the figures hold for.
	Sync     string       `json:"sync"`
	Slots    int          `json:"slots"`
	Emulator EmulatorMode `json:"emulator"`
	Redis    string       `json:"redis"`
	Jobs     int          `json:"jobs"`
	InFlight int          `json:"in_flight"`
	Payload  int64        `json:"payload"`
}

// Print writes the report as a table for people.
func (r Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "milliseconds\tp50\tp90\tp99\tmax")
	for _, d := range []struct {
		name string
		d    Distribution
	}{
		{"enqueue to started", r.EnqueueStarted}, {"enqueue to result", r.EnqueueResult}, {"direct exec", r.ExecDirect},
		{"added by wakebus", r.Added},
		{"printed to heard", r.OutputDelay}, {"added to output by wakebus", r.AddedOutput}, {"lease, taken and given back", r.Lease}, {"enqueue to result, kept busy", r.LoadResult},
	} {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", d.name, known(d.d.P50, 2), known(d.d.P90, 2), known(d.d.P99, 2), known(d.d.Max, 2))
	}
	fmt.Fprintln(t)
	for _, v := range []struct {
		name, value string
	}{
		{"jobs a second", fmt.Sprintf("%.0f", r.JobsPerSecond)},
		{"output", fmt.Sprintf("%.0f MB/s", r.OutputMBPerSecond)},
		{"kept per job", fmt.Sprintf("%.0f bytes in %.1f messages", r.BytesPerJob, r.MessagesPerJob)},
		{"calls per job", fmt.Sprintf("NATS %s messages, Redis %s, Sprites %s", known(r.NATSOpsPerJob, 1), known(r.RedisCallsPerJob, 1), known(r.SpritesCallsPerJob, 1))},
		{"processor per job", fmt.Sprintf("%s ms in this process, %s ms in redis", known(r.CPUMsPerJob, 2), known(r.RedisCPUMsPerJob, 2))},
		{"peak memory", fmt.Sprintf("%.0f MiB, this process", r.PeakRSSMiB)},
		{"measured with", fmt.Sprintf("%d jobs, %d in flight, %s slots, payload %d bytes, sync %s, emulator %s, redis %s",
			r.Jobs, r.InFlight, known(float64(r.Slots), 0), r.Payload, r.Sync, r.Emulator, r.Redis)},
	} {
		fmt.Fprintf(t, "%s\t%s\n", v.name, v.value)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	return nil
}

// known prints a figure; what could not be measured, such as another machine's processor time, is 0 and printed as a dash.
func known(v float64, places int) string {
	if v == 0 {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', places, 64)
}

func round(v float64, places int) float64 {
	scale := math.Pow(10, float64(places))
	return math.Round(v*scale) / scale
}
