package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/session"
)

func TestALinkIsCreatedReadUpdatedAndDeletedByRevision(t *testing.T) {
	t.Parallel()
	links, ctx := setup(t).bus.Links(), within(t)
	const k = "conversation.t.n.c1"
	if _, err := links.Get(ctx, k); !errors.Is(err, session.ErrNotFound) {
		t.Fatalf("before: %v", err)
	}
	one, err := links.Create(ctx, k, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := links.Create(ctx, k, []byte("other")); !errors.Is(err, session.ErrConflict) {
		t.Fatalf("created twice: %v", err)
	}
	two, err := links.Update(ctx, k, []byte("two"), one)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := links.Update(ctx, k, []byte("late"), one); !errors.Is(err, session.ErrConflict) {
		t.Fatalf("updated an old revision: %v", err)
	}
	if got, err := links.Get(ctx, k); err != nil || string(got.Value) != "two" || got.Revision != two {
		t.Fatalf("got %q %d, %v", got.Value, got.Revision, err)
	}
	if err := links.Delete(ctx, k, one); !errors.Is(err, session.ErrConflict) {
		t.Fatalf("deleted an old revision: %v", err)
	}
	if err := links.Delete(ctx, k, two); err != nil {
		t.Fatal(err)
	}
	if _, err := links.Get(ctx, k); !errors.Is(err, session.ErrNotFound) {
		t.Fatalf("after: %v", err)
	}
	again, err := links.Create(ctx, k, []byte("again"))
	if err != nil || again <= two {
		t.Fatalf("created over a deletion: %d, %v", again, err)
	}
}

func TestADeletedLinkIsRememberedForThirtyDays(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	rev, err := r.bus.Links().Create(ctx, "a.b", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.bus.Links().Delete(ctx, "a.b", rev); err != nil {
		t.Fatal(err)
	}
	stream, err := r.js.Stream(ctx, "KV_"+bus.BucketLinks)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetLastMsgForSubject(ctx, "$KV."+bus.BucketLinks+".a.b")
	if err != nil || msg.Header.Get("KV-Operation") != "PURGE" || msg.Header.Get("Nats-TTL") != "2592000s" {
		t.Fatalf("got %v, %v", msg, err)
	}
	kv, err := r.js.KeyValue(ctx, bus.BucketLinks)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Get(ctx, "a.b"); err == nil {
		t.Fatal("the stock client still finds the key")
	}
}

func TestOfManyWritersOfOneRevisionExactlyOneWins(t *testing.T) {
	t.Parallel()
	links, ctx := setup(t).bus.Links(), within(t)
	var wg sync.WaitGroup
	wins := make(chan string, 40)
	for i := range 20 {
		wg.Go(func() {
			value := fmt.Sprint(i)
			switch _, err := links.Create(ctx, "k", []byte(value)); {
			case err == nil:
				wins <- value
			case !errors.Is(err, session.ErrConflict):
				t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	close(wins)
	if len(wins) != 1 {
		t.Fatalf("%d winners", len(wins))
	}
	if got, err := links.Get(ctx, "k"); err != nil || string(got.Value) != <-wins {
		t.Fatalf("got %q, %v", got.Value, err)
	}
}

func TestAListingHoldsEveryLivingKeyOfThePrefixAndNoOther(t *testing.T) {
	t.Parallel()
	links, ctx := setup(t).bus.Links(), within(t)
	var want []string
	for i := range 600 { // more than two batches
		k := fmt.Sprintf("conversation.t.n.c%03d", i)
		rev, err := links.Create(ctx, k, []byte("v"))
		if err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			if err := links.Delete(ctx, k, rev); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want = append(want, k)
	}
	for _, other := range []string{"conversation.t2.n.c1", "terminal.t.n.p1", "conversationx"} {
		if _, err := links.Create(ctx, other, nil); err != nil {
			t.Fatal(err)
		}
	}
	got, err := links.List(ctx, "conversation.t.")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("got %d keys, want %d", len(got), len(want))
	}
	if got, err := links.List(ctx, "conversation.t"); err != nil || len(got) != len(want)+1 {
		t.Fatalf("by half a token: %d keys, %v", len(got), err)
	}
	if all, err := links.List(ctx, ""); err != nil || len(all) != len(want)+3 {
		t.Fatalf("all: %d keys, %v", len(all), err)
	}
}

func TestAListingThatCannotBeFinishedIsAnError(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if keys, err := r.bus.Links().List(ctx, ""); err == nil {
		t.Fatalf("got %v without an error", keys)
	}
}

// case 84: a key that would reach beyond its own subject is refused before a subject is built.
func TestCase84LinkKeysWithWildcardsOrEmptyTokensAreRefused(t *testing.T) {
	t.Parallel()
	links, ctx := setup(t).bus.Links(), within(t)
	for _, k := range []string{"", ".", "a.", ".a", "a..b", "a.*", ">", "a b", "a\r\nPUB x", "ä"} {
		if _, err := links.Create(ctx, k, nil); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("create %q: %v", k, err)
		}
		if _, err := links.Get(ctx, k); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("get %q: %v", k, err)
		}
		if err := links.Delete(ctx, k, 1); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("delete %q: %v", k, err)
		}
	}
	if _, err := links.Update(ctx, "a", nil, 0); !errors.Is(err, bus.ErrInvalid) {
		t.Errorf("update of revision 0: %v", err)
	}
	if _, err := links.List(ctx, "a.*.b"); !errors.Is(err, bus.ErrInvalid) {
		t.Errorf("list by wildcard: %v", err)
	}
}
