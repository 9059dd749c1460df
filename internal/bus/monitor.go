package bus

import (
	"maps"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// The keys by which `nats server check stream|consumer` finds its thresholds on what it checks (jsm.go, package monitor).
const (
	monitorEnabled         = "io.nats.monitor.enabled"
	monitorPeers           = "io.nats.monitor.peer-expect"
	monitorPeerLag         = "io.nats.monitor.peer-lag-critical"
	monitorPeerSeen        = "io.nats.monitor.peer-seen-critical"
	monitorSubjectsWarn    = "io.nats.monitor.subjects-warn"
	monitorSubjectsMost    = "io.nats.monitor.subjects-critical"
	monitorOutstandingAcks = "io.nats.monitor.outstanding-ack-critical"
	monitorUnprocessed     = "io.nats.monitor.unprocessed-critical"
)

// streamMonitor says when a stream is not well: its replicas are missing or behind; for dead letters, how many jobs may
// have one before somebody should look.
func (c Config) streamMonitor(name string) map[string]string {
	m := map[string]string{monitorEnabled: "true"}
	if c.Replicas > 1 {
		m[monitorPeers], m[monitorPeerLag], m[monitorPeerSeen] = strconv.Itoa(c.Replicas), "1000", "30s"
	}
	if name == StreamDLQ {
		m[monitorSubjectsWarn], m[monitorSubjectsMost] = "100", "1000"
	}
	return m
}

// consumerMonitor says when a queue is not well: nobody takes from it, or nobody acks.
func consumerMonitor(cfg jetstream.ConsumerConfig) map[string]string {
	return map[string]string{
		monitorEnabled: "true", monitorUnprocessed: "1000", monitorOutstandingAcks: strconv.Itoa(cfg.MaxAckPending * 9 / 10),
	}
}

// withMonitor lays what an operator has set over our own thresholds.
func withMonitor(ours, have map[string]string) map[string]string {
	out := maps.Clone(ours)
	maps.Copy(out, have)
	return out
}
