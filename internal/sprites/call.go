package sprites

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

const (
	errorBodyMax = 8 << 10
	jsonBodyMax  = 8 << 20
)

// call is one plain HTTP request, which may be tried several times.
type call struct {
	op          Operation
	tenant      string
	method      string
	url         string
	body        []byte
	contentType string
	want        []int         // statuses that mean success
	timeout     time.Duration // of one try, body included
}

// answer is what a call got.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do runs the call by its retry rule and returns the bounded body.
func (c *Client) do(ctx context.Context, req call) (answer, error) {
	var got answer
	err := c.retrying(ctx, req.op, req.tenant, func(ctx context.Context, _ int) error {
		var err error
		got, err = c.once(ctx, req)
		return err
	})
	return got, err
}

// once tries the call once.
func (c *Client) once(ctx context.Context, req call) (answer, error) {
	var got answer
	err := c.stream(ctx, req, func(resp *http.Response) error {
		body, err := readBounded(resp.Body, jsonBodyMax)
		if err != nil {
			return err
		}
		got = answer{status: resp.StatusCode, header: resp.Header, body: body}
		return nil
	})
	return got, err
}

// stream tries the call once and lets read consume a successful answer. The whole of it is bounded by the timeout.
func (c *Client) stream(ctx context.Context, req call, read func(*http.Response) error) error {
	timeout := req.timeout
	if timeout == 0 {
		timeout = c.cfg.CallTimeout
	}
	tctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	hreq, err := http.NewRequestWithContext(tctx, req.method, req.url, bytes.NewReader(req.body))
	if err != nil {
		return refused(req.op, "build request: %w", stripURL(err))
	}
	if req.body == nil {
		hreq.Body = http.NoBody
	}
	c.authorize(hreq.Header)
	if req.contentType != "" {
		hreq.Header.Set("Content-Type", req.contentType)
	}
	resp, err := c.calls.Do(hreq)
	if err != nil {
		return failure(ctx, req.op, err)
	}
	defer resp.Body.Close()
	if !slices.Contains(req.want, resp.StatusCode) {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, errorBodyMax)) // the status decides; the body is a bonus
		return refusal(req.op, resp.StatusCode, resp.Header, body, c.cfg.Now())
	}
	if err := read(resp); err != nil {
		return failure(ctx, req.op, err)
	}
	return nil
}

func (c *Client) authorize(header http.Header) {
	header.Set("Authorization", "Bearer "+c.cfg.Token)
	header.Set("User-Agent", "wakebus")
}

// readBounded reads at most limit bytes and fails with ErrTooLarge when there are more.
func readBounded(r io.Reader, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return body, nil
}

// decode parses a JSON answer. One that cannot be parsed is no answer (a proxy's HTML page comes with 200, too).
func decode[T any](op Operation, got answer) (T, error) {
	var v T
	if err := json.Unmarshal(got.body, &v); err != nil {
		return v, &Error{Op: op, Class: ClassUnavailable, Status: got.status, RequestID: requestID(got.header), cause: ErrMalformed}
	}
	return v, nil
}

// doJSON runs the call and parses its answer, both under the retry rule.
func doJSON[T any](ctx context.Context, c *Client, req call) (T, error) {
	var v T
	err := c.retrying(ctx, req.op, req.tenant, func(ctx context.Context, _ int) error {
		got, err := c.once(ctx, req)
		if err == nil {
			v, err = decode[T](req.op, got)
		}
		return err
	})
	return v, err
}
