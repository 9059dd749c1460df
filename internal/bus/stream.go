package bus

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// linksStream is the stream under the links bucket (nats.go, key-value naming).
const linksStream = "KV_" + BucketLinks

// noDedupe is the shortest window the broker takes. Nothing sends Nats-Msg-Id: one window is shared by all tenants,
// so that one could swallow another's request by its id, and it is forgotten at a restart. The journal is what makes
// a job id idempotent.
const noDedupe = 100 * time.Millisecond

// AuditAge is how long the audit trail is kept.
const AuditAge = 90 * 24 * time.Hour

// streamConfigs is every stream of the contract. A stream that must never lose what it holds discards what is new;
// SANDBOX_OUTPUT alone makes room, and SANDBOX_RETRY cannot discard what is new because schedules forbid it.
func (c Config) streamConfigs() []jetstream.StreamConfig {
	streams := []jetstream.StreamConfig{c.sandboxStream(), c.retryStream(), c.jobsStream(), c.outputStream(), c.controlStream(),
		{
			Name: StreamDLQ, Description: "dead letters, one chain per job",
			Subjects: []string{SubjectDLQ + ".*.*"}, MaxAge: DLQAge, MaxBytes: c.Limits.DLQ,
			// A letter that finds no room is refused, and its request is then not acked.
			Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 64, AllowDirect: true,
		},
		{
			Name: StreamAudit, Description: "who did what",
			Subjects: []string{SubjectAudit + ".>"}, MaxAge: AuditAge, MaxBytes: c.Limits.Audit,
			Discard: jetstream.DiscardOld, AllowDirect: true,
		},
	}
	for i := range streams {
		streams[i].Storage = jetstream.FileStorage
		streams[i].Replicas = c.Replicas
		streams[i].Duplicates = noDedupe
		streams[i].Metadata = c.streamMonitor(streams[i].Name)
	}
	return streams
}

func (c Config) sandboxStream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: StreamSandbox, Description: "requests that wait for a worker",
		Subjects:  []string{SubjectExec, SubjectExec + ".*", SubjectTerminal, SubjectTerminal + ".*", SubjectEnd + ".*"},
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
		DiscardNewPerSubject: true, MaxMsgsPerSubject: int64(c.TenantBacklog),
		MaxBytes: c.Limits.Sandbox, MaxMsgSize: MaxRequestBytes, AllowDirect: true,
	}
}

// retryStream has no limit of its own but the message size: a limit would drop schedules, and with them runs, in
// silence. What is parked is bounded per tenant by whoever parks it (see Parked).
func (c Config) retryStream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: StreamRetry, Description: "runs that are parked until a time, and those whose time has come",
		Subjects:  []string{SubjectRetryAt + ".*.*.*", SubjectRetryDue + ".*.*"},
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardOld,
		MaxMsgSize: MaxRequestBytes + 16<<10, AllowMsgSchedules: true, AllowRollup: true, AllowDirect: true,
	}
}

// jobsStream and outputStream store under another subject than the one published on, and republish only what they
// stored: a plain subscriber on the published subject would see the events that the compare-and-set refused.
func (c Config) jobsStream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: StreamJobs, Description: "the journal: who owns a run and how far it is",
		Subjects: []string{SubjectEvent + ".*.*.*.state"}, MaxAge: JournalAge, MaxBytes: c.Limits.Jobs,
		Discard: jetstream.DiscardNew, MaxMsgSize: maxStateBytes, AllowDirect: true,
		SubjectTransform: transform("state"), RePublish: republish("state"),
	}
}

func (c Config) outputStream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: StreamOutput, Description: "what the commands printed",
		Subjects: []string{SubjectEvent + ".*.*.*.out"}, MaxAge: OutputAge, MaxBytes: c.Limits.Output,
		Discard: jetstream.DiscardOld, MaxMsgSize: 2 * maxOutputChunk, AllowDirect: true,
		SubjectTransform: transform("out"), RePublish: republish("out"),
	}
}

// controlStream discards what is new when it is full: discarding the old would first lift the kill switch.
func (c Config) controlStream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: StreamControl, Description: "cancel marks and switches, the last of each subject",
		Subjects: []string{SubjectCancel + ".>", "sandbox.control.>"}, MaxAge: ControlAge, MaxBytes: c.Limits.Control,
		Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1, MaxMsgSize: 16 << 10, AllowMsgTTL: true, AllowDirect: true,
	}
}

func transform(last string) *jetstream.SubjectTransformConfig {
	return &jetstream.SubjectTransformConfig{
		Source:      SubjectEvent + ".*.*.*." + last,
		Destination: SubjectReply + ".{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}." + last,
	}
}

func republish(last string) *jetstream.RePublish {
	subject := SubjectReply + ".*.*.*." + last
	return &jetstream.RePublish{Source: subject, Destination: subjectIdentity(last)}
}

// subjectIdentity keeps the subject as it is; a destination with wildcards must name them.
func subjectIdentity(last string) string {
	return SubjectReply + ".{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}." + last
}

func (c Config) linksBucket() jetstream.KeyValueConfig {
	return jetstream.KeyValueConfig{
		Bucket: BucketLinks, Description: "which Sprite is whose", History: 1, MaxValueSize: 16 << 10,
		MaxBytes: c.Limits.Links, Storage: jetstream.FileStorage, Replicas: c.Replicas, LimitMarkerTTL: TombstoneAge,
		Metadata: c.streamMonitor(linksStream),
	}
}

// queueSource is one of the two streams that a kind's requests come from.
type queueSource struct {
	stream   string
	consumer string
	filters  []string
}

// queueSources lists where requests of a kind come from: the fresh ones, then those whose parking time has come.
func queueSources(kind Kind) [2]queueSource {
	fresh := []string{RequestSubject(kind, "") + ".*"}
	if kind != KindEnd { // sandbox.end has no untenanted subject
		fresh = append(fresh, RequestSubject(kind, ""))
	}
	return [2]queueSource{
		{stream: StreamSandbox, consumer: string(kind), filters: fresh},
		{stream: StreamRetry, consumer: string(kind) + "-due", filters: []string{SubjectRetryDue + "." + string(kind) + ".*"}},
	}
}

// consumerConfig has no BackOff, which would replace AckWait and distort delays, and no MaxDeliver, which strands a
// message in silence; attempts are counted in the journal.
func (c Config) consumerConfig(src queueSource) jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{
		Name: src.consumer, Durable: src.consumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: c.AckWait,
		MaxDeliver: -1, MaxAckPending: 20_000, MaxWaiting: 4096, DeliverPolicy: jetstream.DeliverAllPolicy,
		ReplayPolicy: jetstream.ReplayInstantPolicy,
	}
	cfg.Metadata = consumerMonitor(cfg)
	if len(src.filters) == 1 {
		cfg.FilterSubject = src.filters[0]
	} else {
		cfg.FilterSubjects = src.filters
	}
	return cfg
}

// Kinds lists the closed set of request kinds. The caller may keep the slice.
func Kinds() []Kind { return []Kind{KindExec, KindTerminal, KindEnd} }

// Valid reports whether k is one of the closed set.
func (k Kind) Valid() bool {
	switch k {
	case KindExec, KindTerminal, KindEnd:
		return true
	}
	return false
}
