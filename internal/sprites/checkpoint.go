package sprites

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"time"
)

// CheckpointInfo is a listed checkpoint.
type CheckpointInfo struct {
	// ID names it within its Sprite.
	ID string
	// Created is when; zero when unknown.
	Created time.Time
	// Comment is its maker's.
	Comment string
}

type wireCheckpoint struct {
	ID         string   `json:"id"`
	CreateTime wireTime `json:"create_time"`
	Comment    string   `json:"comment"`
}

var checkpointShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Checkpoints lists a Sprite's checkpoints.
func (c *Client) Checkpoints(ctx context.Context, sprite string) ([]CheckpointInfo, error) {
	if err := checkName(OpCheckpoints, sprite); err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	listed, err := doJSON[[]wireCheckpoint](ctx, c, call{
		op: OpCheckpoints, method: http.MethodGet, url: c.spriteURL(sprite, nil, "checkpoints"), want: []int{http.StatusOK},
	})
	if err != nil {
		return nil, fmt.Errorf("list checkpoints of %s: %w", sprite, err)
	}
	infos := make([]CheckpointInfo, 0, len(listed))
	for _, w := range listed {
		infos = append(infos, CheckpointInfo{ID: w.ID, Created: w.CreateTime.Time, Comment: w.Comment})
	}
	return infos, nil
}

// checkpointTimeout bounds a checkpoint or restore; live ones take seconds.
const checkpointTimeout = 5 * time.Minute

// Checkpoint makes a checkpoint and returns it. It succeeds only when the progress stream ended with completion and the
// listing shows a new one; the stream itself names the id in prose only. It is never retried. It blocks for 5 min at
// most; a caller in a hurry bounds ctx.
func (c *Client) Checkpoint(ctx context.Context, sprite, comment string) (CheckpointInfo, error) {
	before, err := c.Checkpoints(ctx, sprite)
	if err != nil {
		return CheckpointInfo{}, fmt.Errorf("checkpoint: %w", err)
	}
	body, err := json.Marshal(map[string]string{"comment": comment})
	if err != nil {
		return CheckpointInfo{}, fmt.Errorf("checkpoint %s: %w", sprite, refused(OpCheckpoint, "encode comment: %w", err))
	}
	if err := c.progress(ctx, c.spriteURL(sprite, nil, "checkpoint"), body); err != nil {
		return CheckpointInfo{}, fmt.Errorf("checkpoint %s: %w", sprite, err)
	}
	after, err := c.Checkpoints(ctx, sprite)
	if err != nil {
		return CheckpointInfo{}, fmt.Errorf("checkpoint: %w", err)
	}
	known := map[string]bool{}
	for _, info := range before {
		known[info.ID] = true
	}
	var made CheckpointInfo
	for _, info := range after {
		if !known[info.ID] && info.ID != "Current" && !info.Created.Before(made.Created) {
			made = info
		}
	}
	if made.ID == "" {
		return CheckpointInfo{}, fmt.Errorf("checkpoint %s: %w", sprite, &Error{Op: OpCheckpoint, Class: ClassUnavailable, cause: ErrIncomplete})
	}
	return made, nil
}

// Restore puts a Sprite's disk back to a checkpoint. Sessions end; the instance id stays, so the caller counts a new
// generation, which voids every earlier [Proof]. It succeeds only when the progress stream ended with completion. It is
// never retried. It blocks for 5 min at most.
func (c *Client) Restore(ctx context.Context, sprite, checkpoint string) error {
	if err := checkName(OpCheckpoint, sprite); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if !checkpointShape.MatchString(checkpoint) {
		return fmt.Errorf("restore %s: %w", sprite, refused(OpCheckpoint, "malformed checkpoint id"))
	}
	if err := c.progress(ctx, c.spriteURL(sprite, nil, "checkpoints", checkpoint, "restore"), []byte("{}")); err != nil {
		return fmt.Errorf("restore %s: %w", sprite, err)
	}
	return nil
}

// progress posts body and reads the progress stream to its end.
func (c *Client) progress(ctx context.Context, address string, body []byte) error {
	return c.retrying(ctx, OpCheckpoint, "", func(ctx context.Context, _ int) error {
		return c.stream(ctx, call{
			op: OpCheckpoint, method: http.MethodPost, url: address, body: body, contentType: "application/json",
			want: []int{http.StatusOK}, timeout: checkpointTimeout,
		}, func(resp *http.Response) error {
			return readProgress(resp.Body, func(progress) {})
		})
	})
}
