package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// pull asks a consumer for one message at a time over one subscription. nats.go's Next and Fetch make a subscription, a
// goroutine and two timers for each message, which was a twentieth of what a job cost. It is not safe for concurrent use.
type pull struct {
	nc      *nats.Conn
	subject string
	sub     *nats.Subscription
}

// glancing asks for what is there now.
var glancing = pullBody(0)

// pullBody asks for one message, for at most wait, or only for what is there when that is 0 (JetStream API, consumer
// next). Never with a heartbeat or a context: a pull that the client gives up while the broker still serves it leaves a
// message delivered and unseen until AckWait.
func pullBody(wait time.Duration) []byte {
	body, _ := json.Marshal(struct {
		Batch   int           `json:"batch"`
		Expires time.Duration `json:"expires,omitempty"`
		NoWait  bool          `json:"no_wait,omitempty"`
	}{1, wait, wait == 0}) // numbers and a word: it cannot fail
	return body
}

func (b *Bus) openPull(src queueSource) (*pull, error) {
	p := &pull{nc: b.nc, subject: "$JS.API.CONSUMER.MSG.NEXT." + src.stream + "." + src.consumer}
	return p, p.listen()
}

func (p *pull) listen() error {
	sub, err := p.nc.SubscribeSync(p.nc.NewInbox())
	if err != nil {
		return fmt.Errorf("listen for pulled messages: %w", classify(err))
	}
	p.sub = sub
	return nil
}

func (p *pull) close() {
	if p.sub != nil {
		_ = p.sub.Unsubscribe() // fails only on a closed connection, which has no subscriptions
		p.sub = nil
	}
}

// next sends one request and waits for its answer, a second longer than the broker does. nats.ErrTimeout is that nothing
// came.
func (p *pull) next(body []byte, wait time.Duration) (*nats.Msg, error) {
	if p.sub == nil {
		if err := p.listen(); err != nil {
			return nil, err
		}
	}
	if err := p.nc.PublishRequest(p.subject, p.sub.Subject, body); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(wait + time.Second)
	for {
		msg, err := p.sub.NextMsg(time.Until(deadline))
		if err != nil {
			// An answer that is still to come must not pass for the next request's: that one would be a message too many.
			p.close()
			return nil, err
		}
		if len(msg.Data) > 0 || msg.Header.Get(headerNatsStatus) == "" {
			return msg, nil
		}
		if err := pullStatus(msg); err != nil {
			return nil, err
		}
	}
}

// pullStatus is what an answer without a message means; nil for one that means nothing.
func pullStatus(msg *nats.Msg) error {
	switch status, why := msg.Header.Get(headerNatsStatus), msg.Header.Get("Description"); status {
	case "100":
		return nil
	case "404", "408": // no message is there, or none came in time
		return nats.ErrTimeout
	case "503":
		return nats.ErrNoResponders
	default:
		if strings.EqualFold(why, "Consumer Deleted") {
			return jetstream.ErrConsumerDeleted
		}
		return fmt.Errorf("%w: the pull was answered %s %s", errPullEnded, status, why)
	}
}

// errPullEnded: the broker ended a pull before its time, because it shuts down or another one leads now.
var errPullEnded = errors.New("pull ended early")
